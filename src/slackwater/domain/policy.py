"""Who runs next: the policy's interface, and weighted fair sharing between tenants with deadlines inside each.

Theory. Start-time fair queueing (Goyal, Vin and Cheng, 1996) keeps a virtual time, the *tag*, for each tenant: a grant
of cost ``c`` moves the tag of a tenant with weight ``w`` by ``c / w``, and the tenant with the smallest tag is served
next. Two tenants that both stay busy then receive service in proportion to their weights, whatever they ask for. A
tenant that turns busy starts at the virtual time of the moment, so idleness earns no credit and costs nothing. Within
one tenant the earliest deadline goes first.

The policy is pure: it sees what may run and who has room, and names grants. It holds nothing but the tags.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from slackwater.domain.ids import BatchId, TenantId, WorkerId

EXPRESS_LINES: Final = 20
"""A chunk of at most so many requests may go to a worker's express slot, past the chunks it holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Runnable:
    """The pending chunks of one batch for one model, in plan order; the sequences are of equal length."""

    batch_id: BatchId
    tenant_id: TenantId
    weight: float
    deadline: float
    """Seconds since the epoch."""
    model: str
    seqs: tuple[int, ...]
    lines: tuple[int, ...]
    costs: tuple[float, ...]
    """Engine-seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """One live worker with room."""

    worker_id: WorkerId
    incarnation: UUID
    models: frozenset[str]
    free_lines: int
    """How many more lines it wants to hold; at or below zero there is only its express slot."""
    express: bool
    """Whether its express slot is free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """One chunk for one worker."""

    batch_id: BatchId
    seq: int
    worker_id: WorkerId
    incarnation: UUID


class Policy(Protocol):
    """Decides which chunks go to which workers."""

    def grant(self, runnables: Sequence[Runnable], openings: Sequence[Opening], *, limit: int) -> list[Grant]:
        """Name at most ``limit`` grants; each chunk at most once, no worker beyond its room but by one chunk."""
        ...


class _Queue:
    """The chunks of one tenant for one model, earliest deadline first."""

    def __init__(self, runnables: list[Runnable]) -> None:
        self._runnables = sorted(runnables, key=lambda r: (r.deadline, r.batch_id))
        self._batch = 0
        self._chunk = 0
        self.weight = runnables[0].weight

    def head(self) -> tuple[Runnable, int] | None:
        """Return the next chunk as its batch and its place there."""
        if self._batch == len(self._runnables):
            return None
        return self._runnables[self._batch], self._chunk

    def pop(self) -> None:
        """Take the head off."""
        self._chunk += 1
        if self._chunk == len(self._runnables[self._batch].seqs):
            self._batch += 1
            self._chunk = 0


class _Room:
    """The workers of one model, the one with the most room first; an express slot counts once."""

    def __init__(self, openings: Iterable[Opening], free: dict[WorkerId, int]) -> None:
        self._openings = list(openings)
        self._free = free
        self._heap = [(-free[o.worker_id], n) for n, o in enumerate(self._openings) if free[o.worker_id] > 0]
        heapq.heapify(self._heap)
        self._express = [o for o in self._openings if o.express and free[o.worker_id] <= 0]

    def take(self, lines: int) -> Opening | None:
        """Give a chunk of so many lines to a worker; None when nobody has room for it."""
        if self._heap:
            _, n = heapq.heappop(self._heap)
            opening = self._openings[n]
            self._free[opening.worker_id] -= lines
            if self._free[opening.worker_id] > 0:
                heapq.heappush(self._heap, (-self._free[opening.worker_id], n))
            return opening
        if self._express and lines <= EXPRESS_LINES:
            return self._express.pop()
        return None

    def full(self) -> bool:
        """Tell whether no chunk at all fits any more."""
        return not self._heap and not self._express


class FairShare:
    """Weighted fair between tenants, earliest deadline within one.

    ``tags`` are the virtual times per (tenant, model), kept up to date in place; whoever owns them may save them.
    """

    def __init__(self, tags: dict[tuple[str, str], float]) -> None:
        self.tags = tags
        self._busy: dict[str, frozenset[str]] = {}
        self._virtual: dict[str, float] = {}

    def grant(self, runnables: Sequence[Runnable], openings: Sequence[Opening], *, limit: int) -> list[Grant]:
        """Name at most ``limit`` grants, O(log n) each."""
        by_model: dict[str, dict[str, list[Runnable]]] = {}
        for runnable in runnables:
            by_model.setdefault(runnable.model, {}).setdefault(runnable.tenant_id, []).append(runnable)
        grants: list[Grant] = []
        free = {opening.worker_id: opening.free_lines for opening in openings}
        for model in sorted(by_model):
            room = _Room((opening for opening in openings if model in opening.models), free)
            queues = {tenant: _Queue(batches) for tenant, batches in by_model[model].items()}
            self._wake(model, frozenset(queues))
            grants += self._serve(model, queues, room, limit - len(grants))
        return grants

    def _wake(self, model: str, busy: frozenset[str]) -> None:
        """Bring tenants that turned busy up to the virtual time of the moment."""
        before = self._busy.get(model, frozenset())
        stayed = [self.tags.get((tenant, model), 0.0) for tenant in busy & before]
        floor = max([self._virtual.get(model, 0.0), *([min(stayed)] if stayed else [])])
        for tenant in busy - before:
            self.tags[tenant, model] = max(self.tags.get((tenant, model), 0.0), floor)
        self._busy[model] = busy

    def _serve(self, model: str, queues: dict[str, _Queue], room: _Room, limit: int) -> list[Grant]:
        """Serve the tenant with the smallest tag until the room, the work or the limit ends."""
        order = [(self.tags[tenant, model], tenant) for tenant in queues]
        heapq.heapify(order)
        grants: list[Grant] = []
        while order and len(grants) < limit and not room.full():
            tag, tenant = heapq.heappop(order)
            queue = queues[tenant]
            head = queue.head()
            if head is None:
                continue
            runnable, place = head
            opening = room.take(runnable.lines[place])
            if opening is None:  # only express slots are left, and this chunk is not small: look at other tenants
                continue
            queue.pop()
            self._virtual[model] = tag
            self.tags[tenant, model] = tag + runnable.costs[place] / queue.weight
            heapq.heappush(order, (self.tags[tenant, model], tenant))
            grants.append(
                Grant(
                    batch_id=runnable.batch_id,
                    seq=runnable.seqs[place],
                    worker_id=opening.worker_id,
                    incarnation=opening.incarnation,
                )
            )
        return grants
