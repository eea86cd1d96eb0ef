"""The leases that a worker holds, each on its way from waiting over running to committed, and what moves them on.

::

    waiting ──open──► opening ──► running ──complete──► committing ──► ended
       └─────────────────┴───────────┴── revoked, stopped or given back

The database says what is leased; :meth:`Holdings.obey` brings this in line with it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import structlog

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import Lease, Orders, release_chunk
from slackwater.db.session import Database
from slackwater.domain.errors import ObjectMissing, Unavailable
from slackwater.domain.ids import LeaseToken
from slackwater.domain.policy import EXPRESS_LINES
from slackwater.domain.rewriting import operator_prefix
from slackwater.flow.work_chunk import ChunkRun
from slackwater.flow.work_commit import commit_run
from slackwater.flow.work_feed import Feeder

_LOG: Final = structlog.get_logger("slackwater.work")
_UNREADABLE_PAUSE_SECONDS: Final = 5.0
_BATCH_PRIORITY: Final = 100
"""vLLM runs smaller numbers first, and real-time requests have 0."""


@dataclass(kw_only=True, slots=True)
class Tally:
    """What committed chunks of one model add up to."""

    prompt_bytes: int = 0
    """Bytes of their request bodies."""
    input_tokens: int = 0


class HoldingsObserver(Protocol):
    """Told how leases end."""

    def committed(self, run: ChunkRun, seconds: float) -> None:
        """A chunk's results stand; ``seconds`` is what the commit itself took."""
        ...

    def refused(self, run: ChunkRun) -> None:
        """A chunk's lease was taken away while it ran: what was done of it is lost."""
        ...

    def released(self) -> None:
        """A lease was given back."""
        ...


class Holdings:
    """What one worker holds. ``changed`` is called when the database should be asked again soon."""

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        feeder: Feeder,
        *,
        observer: HoldingsObserver,
        changed: Callable[[], None],
        clock: Callable[[], float],
        lines_ahead: int,
        knows_priority: bool,
    ) -> None:
        self._db = db
        self._store = store
        self._feeder = feeder
        self._observer = observer
        self._changed = changed
        self._clock = clock
        self._lines_ahead = lines_ahead
        self._knows_priority = knows_priority
        self._waiting: dict[LeaseToken, Lease] = {}
        self._opening: dict[LeaseToken, Lease] = {}
        self._running: dict[LeaseToken, ChunkRun] = {}
        self._committing: dict[LeaseToken, ChunkRun] = {}
        self._revoked: set[LeaseToken] = set()
        """Of the leases being committed, those that the database no longer knows."""
        self._ended: dict[LeaseToken, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.tallies: dict[str, Tally] = {}
        """What was committed since somebody last took this, by model."""
        self.taking = True
        """Whether new leases are opened; a draining worker gives them back."""

    @property
    def empty(self) -> bool:
        """Whether nothing is held any more."""
        return not (self._waiting or self._opening or self._running or self._committing)

    @property
    def finished_lines(self) -> int:
        """Lines already ended in chunks that are not committed yet."""
        return sum(run.finished for run in (*self._running.values(), *self._committing.values()))

    def obey(self, orders: Orders, began: float) -> None:
        """Bring what is held in line with what was leased at ``began``, when the question was asked.

        An answer may be older than a commit of ours: a lease that ended after ``began`` is not taken up again.
        """
        self._ended = {token: ended for token, ended in self._ended.items() if ended >= began}
        leased = {lease.token: lease for lease in orders.leases}
        for lease in leased.values():
            self._take(lease)
        for token in [token for token in self._waiting if token not in leased]:
            del self._waiting[token]
        for token, run in list(self._running.items()):
            if token not in leased:
                self._abandon(run)
        self._revoked.update(token for token in self._committing if token not in leased)
        self.open_more()

    def _take(self, lease: Lease) -> None:
        """Take up one lease, or hear that its batch has stopped."""
        token = lease.token
        if token in self._ended or token in self._committing or token in self._opening:
            return
        run = self._running.get(token)
        if run is not None:
            if lease.stopped is not None and not run.stopped:
                self._spawn(self._stop(run, lease.stopped))
        elif lease.stopped is not None or not self.taking:
            # Nothing of it ran: as a pending chunk it costs the assembler less than a commit would.
            self._waiting.pop(token, None)
            self._end(token)
            self._spawn(self._release(lease))
        else:
            self._waiting[token] = lease

    def open_more(self) -> None:
        """Read the next chunks before the feeder runs dry, small ones first, and no more than it needs."""
        if not self._waiting:
            return
        opened = self._feeder.untried_lines + sum(lease.n_requests for lease in self._opening.values())
        for lease in sorted(self._waiting.values(), key=lambda lease: lease.n_requests > EXPRESS_LINES):
            if opened >= self._lines_ahead and lease.n_requests > EXPRESS_LINES:
                return
            del self._waiting[lease.token]
            self._opening[lease.token] = lease
            opened += lease.n_requests
            self._spawn(self._open(lease))

    async def _open(self, lease: Lease) -> None:
        """Read a chunk's lines and hand them to the feeder."""
        try:
            source = await self._store.get_range(lease.source_key, lease.byte_start, lease.byte_length)
            prefix = (
                operator_prefix(priority=_BATCH_PRIORITY, cache_salt=lease.tenant_id) if self._knows_priority else b""
            )
            run = ChunkRun(lease, source, operator_prefix=prefix, started_at=self._clock())
        except (ObjectMissing, Unavailable, ValueError, msgspec.DecodeError) as error:
            _LOG.error("chunk cannot be read", batch_id=lease.batch_id, chunk=lease.seq, cause=str(error))
            # Given back at once it would be leased again at once, and so on several times a second.
            await asyncio.sleep(_UNREADABLE_PAUSE_SECONDS)
            del self._opening[lease.token]
            self._end(lease.token)
            await self._release(lease)
            return
        del self._opening[lease.token]
        self._running[lease.token] = run
        self._feeder.add(run)

    def complete(self, run: ChunkRun) -> None:
        """Commit a run whose lines have all ended; one that is given up meanwhile is left alone."""
        if self._running.pop(run.lease.token, None) is None:
            return
        self._committing[run.lease.token] = run
        self._spawn(self._commit(run))

    async def _commit(self, run: ChunkRun) -> None:
        token = run.lease.token
        started = self._clock()
        try:
            stands = await commit_run(self._db, self._store, run, still_held=lambda: token not in self._revoked)
        finally:
            del self._committing[token]
            self._revoked.discard(token)
            self._end(token)
            self._changed()
        if stands:
            tally = self.tallies.setdefault(run.lease.model, Tally())
            tally.prompt_bytes += run.prompt_bytes
            tally.input_tokens += run.usage.input_tokens
            self._observer.committed(run, self._clock() - started)
        else:
            _LOG.warning("commit refused: the lease was lost", batch_id=run.lease.batch_id, chunk=run.lease.seq)
            self._observer.refused(run)

    async def _stop(self, run: ChunkRun, reason: str) -> None:
        """End a chunk of a stopped batch: abort what is at the engine, keep what is done, close the rest, commit."""
        await self._halt(run)
        run.close_unrun(reason)
        if run.lease.token in self._running:
            self.complete(run)

    def _abandon(self, run: ChunkRun) -> None:
        """Drop a chunk whose lease is gone: its results would be refused."""
        del self._running[run.lease.token]
        self._end(run.lease.token)
        self._observer.refused(run)
        _LOG.warning("chunk abandoned: its lease is gone", batch_id=run.lease.batch_id, chunk=run.lease.seq)
        self._spawn(self._halt(run))

    async def give_back(self) -> None:
        """Give every chunk back that is not being committed: another worker may have an engine."""
        leases = [*self._waiting.values(), *(run.lease for run in self._running.values())]
        runs = list(self._running.values())
        self._waiting.clear()
        self._running.clear()
        for lease in leases:
            self._end(lease.token)
        for run in runs:
            await self._halt(run)
        for lease in leases:
            await self._release(lease)

    async def settle(self, seconds: float) -> None:
        """Wait until every task of its own has ended, and end those that take longer.

        What they were about to write is refused or swept later: their leases end with this worker's heartbeat.
        """
        until = self._clock() + seconds
        while self._tasks and (left := until - self._clock()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        if self._tasks:
            _LOG.warning("ends without committing: the database or the store is away", chunks=len(self._committing))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _halt(self, run: ChunkRun) -> None:
        """Run nothing more of a chunk, and wait until the engine has let go of it."""
        self._feeder.stop(run)
        # Each task of it ends in a turn or two of the loop, by itself: an event would need the same bookkeeping.
        while run.active:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _release(self, lease: Lease) -> None:
        """Give one lease back. Where the database is away the next sync finds it leased, and it is taken up again."""
        self._observer.released()
        try:
            await release_chunk(self._db, lease)
        except Unavailable as error:
            _LOG.warning("lease not given back", batch_id=lease.batch_id, chunk=lease.seq, cause=str(error))

    def _end(self, token: LeaseToken) -> None:
        """Remember that a lease ended, until an answer asked for later has been obeyed."""
        self._ended[token] = self._clock()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something on the side; its failure is logged, never lost."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("chunk task failed", exc_info=error)
