"""Leases: what the leader writes, and the statements a worker polls, commits and gives back with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from slackwater.db.queue.planning import LEASE_SECONDS
from slackwater.db.queue.results import ResultObject, StoredRange
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId, LeaseToken, TenantId, WorkerId
from slackwater.domain.policy import EXPRESS_LINES, Grant, Opening, Runnable
from slackwater.domain.usage import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """One chunk that this worker may run and commit until its token is taken away."""

    batch_id: BatchId
    seq: int
    token: LeaseToken
    tenant_id: TenantId
    model: str
    """The served model's id, which the engine must be asked for."""
    asked_model: str | None
    """The name in the lines, where the batch has one for all of them."""
    source_key: str
    byte_start: int
    byte_length: int
    n_requests: int
    crc32: int | None
    """Of these bytes; None for a chunk that was planned before it was kept."""
    index: StoredRange | None
    """The entries of its lines in the plan's index, from which their custom ids can be read."""
    first_number: int
    """Number of the chunk's first line within its batch; the others follow."""
    attempts: int
    """Leases of this chunk so far, this one included; one that was given back does not count."""
    checkpoints: int
    """How often what was finished of it has been kept; 0 where nothing of it ever ran."""
    endpoint: str
    dialect: str
    stopped: str | None
    """``cancelled``, ``expired`` or ``paused`` where the batch does not run now, else None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a worker tells with every sync."""

    worker_id: WorkerId
    incarnation: UUID
    target_lines: int
    """How many leased lines it wants to hold, those already finished in unfinished chunks included."""
    in_flight: int
    engine_ready: bool
    lines_per_second: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """What a worker hears back."""

    leases: tuple[Lease, ...]
    draining: bool
    work_waits: bool
    """Whether some chunk of its models is pending."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkResult:
    """Everything a commit writes. The four counts add up to the chunk's number of requests."""

    succeeded: int
    errored: int
    cancelled: int
    expired: int
    usage: Usage
    output: ResultObject | None
    errors: ResultObject | None


async def elect(db: Database, holder: str) -> int:
    """Begin a new term and return its number. Only the holder of the election lock may call this."""
    rows = await db.fetch("schedule.elect", SQL["elect_leader"], {"holder": holder})
    return int(rows[0].term)


async def openings(db: Database) -> list[Opening]:
    """Return the live workers that have room for a chunk."""
    params = {"lease_seconds": LEASE_SECONDS, "express_lines": EXPRESS_LINES}
    rows = await db.fetch("schedule.openings", SQL["openings"], params)
    return [
        Opening(
            worker_id=row.id,
            incarnation=row.incarnation,
            models=frozenset(row.models),
            free_lines=int(row.free_lines),
            express=row.express,
        )
        for row in rows
    ]


async def runnable(db: Database, models: Sequence[str], *, head: int) -> list[Runnable]:
    """Return the batches with pending chunks of these models, each with at most ``head`` chunks in plan order."""
    rows = await db.fetch("schedule.runnable", SQL["runnable"], {"models": list(models), "head": head})
    return [
        Runnable(
            batch_id=row.batch_id,
            tenant_id=row.tenant_id,
            weight=row.weight,
            deadline=row.deadline,
            model=row.model,
            seqs=tuple(row.seqs),
            lines=tuple(row.lines),
            costs=tuple(row.costs),
        )
        for row in rows
    ]


async def lease_chunks(db: Database, term: int, grants: Sequence[Grant]) -> int:
    """Write the leases of one tick in one statement; returns how many stand.

    Zero for all of them when another leader's term has begun. A chunk that is no longer pending is passed over.
    """
    params = {
        "term": term,
        "batch_ids": [grant.batch_id for grant in grants],
        "seqs": [grant.seq for grant in grants],
        "worker_ids": [grant.worker_id for grant in grants],
        "incarnations": [grant.incarnation for grant in grants],
    }
    return len(await db.fetch("schedule.lease", SQL["lease_chunks"], params))


async def reap_leases(db: Database, *, limit: int = 1000) -> int:
    """Send the chunks of dead workers back to pending; returns how many."""
    params = {"lease_seconds": LEASE_SECONDS, "limit": limit}
    return len(await db.fetch("schedule.reap", SQL["reap_leases"], params))


async def load_tags(db: Database) -> dict[tuple[str, str], float]:
    """Return the virtual service time of every (tenant, model), as last saved."""
    rows = await db.fetch("schedule.load_tags", SQL["load_tags"], {})
    return {(row.tenant_id, row.model): row.tag for row in rows}


async def save_tags(db: Database, term: int, tags: dict[tuple[str, str], float]) -> None:
    """Save the virtual service times so that a restart forgets nobody's share; nothing once another term has begun."""
    params = {
        "term": term,
        "tenant_ids": [tenant for tenant, _ in tags],
        "models": [model for _, model in tags],
        "tags": list(tags.values()),
    }
    await db.fetch("schedule.save_tags", SQL["save_tags"], params)


async def register_worker(
    db: Database, *, worker_id: WorkerId, incarnation: UUID, models: Sequence[str], slots: int
) -> None:
    """Announce a worker process; leases of an earlier process of the same name end with this."""
    params = {"worker_id": worker_id, "incarnation": incarnation, "models": list(models), "slots": slots}
    await db.fetch("work.register", SQL["register_worker"], params)


async def leave(db: Database, *, worker_id: WorkerId, incarnation: UUID) -> int:
    """Say goodbye: no lease is given to this process any more; returns how many it still held and gave back.

    A lease that was on its way to it meanwhile is taken back by the leader's next look for dead workers.
    """
    params = {"worker_id": worker_id, "incarnation": incarnation, "lease_seconds": LEASE_SECONDS}
    return len(await db.fetch("work.leave", SQL["leave"], params))


async def announce_model(db: Database, model_id: str, max_model_len: int | None) -> None:
    """Make a model known to planning, or refresh what is known of its length."""
    await db.fetch("work.announce", SQL["announce_model"], {"model_id": model_id, "max_model_len": max_model_len})


async def sync(db: Database, report: Report) -> Orders | None:
    """Beat, report, and hear what is leased; None when another process has taken this worker's name."""
    params = {
        "worker_id": report.worker_id,
        "incarnation": report.incarnation,
        "target_lines": report.target_lines,
        "in_flight": report.in_flight,
        "engine_ready": report.engine_ready,
        "lines_per_second": report.lines_per_second,
    }
    rows = await db.fetch("work.sync", SQL["sync"], params)
    if not rows:
        return None
    leases = tuple(lease_of(row) for row in rows if row.batch_id is not None)
    return Orders(leases=leases, draining=rows[0].draining, work_waits=rows[0].work_waits)


def lease_of(row: Any) -> Lease:
    """Make a lease of a row that has a column for each of its fields."""
    return Lease(
        batch_id=row.batch_id,
        seq=row.seq,
        token=row.token,
        tenant_id=row.tenant_id,
        model=row.model,
        asked_model=row.asked_model,
        source_key=row.source_key,
        byte_start=row.byte_start,
        byte_length=row.byte_length,
        n_requests=row.n_requests,
        crc32=row.crc32,
        index=index_of(row),
        first_number=row.first_number,
        attempts=row.attempts,
        checkpoints=row.checkpoints,
        endpoint=row.endpoint,
        dialect=row.dialect,
        stopped=row.stopped,
    )


def index_of(row: Any) -> StoredRange | None:
    """Name the index entries of a chunk's row; None where it has none."""
    if row.index_key is None or row.index_crc32 is None:
        return None
    return StoredRange(row.index_key, row.index_start, row.index_bytes, row.index_crc32)


def result_params(result: ChunkResult) -> dict[str, Any]:
    """Name the counts, the usage and the objects of a result as the statements do."""
    return {
        "succeeded": result.succeeded,
        "errored": result.errored,
        "cancelled": result.cancelled,
        "expired": result.expired,
        "input_tokens": result.usage.input_tokens,
        "cached_tokens": result.usage.cached_tokens,
        "output_tokens": result.usage.output_tokens,
        "reasoning_tokens": result.usage.reasoning_tokens,
        "out_key": result.output and result.output.key,
        "out_bytes": result.output.size_bytes if result.output else 0,
        "out_sha256": result.output and result.output.sha256,
        "out_crc32": result.output and result.output.crc32,
        "err_key": result.errors and result.errors.key,
        "err_bytes": result.errors.size_bytes if result.errors else 0,
        "err_sha256": result.errors and result.errors.sha256,
        "err_crc32": result.errors and result.errors.crc32,
    }


async def commit_chunk(db: Database, lease: Lease, result: ChunkResult) -> bool:
    """Flip the chunk's pointer, count its lines and write its ledger row; False when the lease is lost."""
    params = {
        "batch_id": lease.batch_id,
        "seq": lease.seq,
        "token": lease.token,
        **result_params(result),
    }
    return bool(await db.fetch("work.commit", SQL["commit_chunk"], params))


async def was_committed(db: Database, lease: Lease) -> bool:
    """Tell whether it was under this very lease that the chunk was committed."""
    params = {"batch_id": lease.batch_id, "seq": lease.seq, "token": lease.token}
    return bool(await db.fetch("work.committed", SQL["was_committed"], params))


async def release_chunk(db: Database, lease: Lease) -> bool:
    """Give a chunk back unfinished, at no cost to its attempts; False when the lease is lost already."""
    params = {"batch_id": lease.batch_id, "seq": lease.seq, "token": lease.token}
    return bool(await db.fetch("work.release", SQL["release_chunk"], params))


async def learn_model(db: Database, model_id: str, *, seconds_per_line: float, bytes_per_token: float | None) -> None:
    """Fold what one worker measured lately into the model's running means."""
    params = {"model_id": model_id, "seconds_per_line": seconds_per_line, "bytes_per_token": bytes_per_token}
    await db.fetch("work.learn", SQL["learn_model"], params)
