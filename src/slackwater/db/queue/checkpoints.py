"""Checkpoints: what a lease has finished so far, kept with its chunk for whoever holds it next."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from slackwater.db.queue.leases import Lease
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId
from slackwater.domain.outcomes import Attempts
from slackwater.domain.places import pack_places, unpack_places
from slackwater.domain.usage import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Lines that ended between two checkpoints: one object, the output lines first, the error lines behind them."""

    segment_no: int
    object_key: str
    out_bytes: int
    err_bytes: int
    sha256: str
    ended: tuple[int, ...]
    """The places of the lines within their chunk."""
    succeeded: int
    errored: int
    usage: Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Unended:
    """What the lines without a result have behind them."""

    attempts: dict[int, Attempts]
    suspects: frozenset[int]
    """Lines that were at an engine when it died."""
    on_trial: frozenset[int]
    """Those of them that ran with nothing else running when this was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What earlier leases of a chunk left behind."""

    segments: Sequence[Segment]
    unended: Unended


async def checkpoint_chunk(
    db: Database, lease: Lease, *, checkpoint_no: int, segment: Segment | None, unended: Unended
) -> bool:
    """Keep what a lease has finished; False when the lease is lost. Idempotent for one ``checkpoint_no``."""
    params = {
        "batch_id": lease.batch_id,
        "seq": lease.seq,
        "token": lease.token,
        "checkpoint_no": checkpoint_no,
        "line_attempts": _written(unended.attempts),
        "suspects": sorted(unended.suspects) or None,
        "on_trial": sorted(unended.on_trial) or None,
        "object_key": segment and segment.object_key,
        "out_bytes": segment.out_bytes if segment else 0,
        "err_bytes": segment.err_bytes if segment else 0,
        "sha256": segment and segment.sha256,
        "ended": pack_places(segment.ended) if segment else b"",
        "succeeded": segment.succeeded if segment else 0,
        "errored": segment.errored if segment else 0,
        "input_tokens": segment.usage.input_tokens if segment else 0,
        "cached_tokens": segment.usage.cached_tokens if segment else 0,
        "output_tokens": segment.usage.output_tokens if segment else 0,
        "reasoning_tokens": segment.usage.reasoning_tokens if segment else 0,
    }
    return bool(await db.fetch("work.checkpoint", SQL["checkpoint_chunk"], params))


async def history(db: Database, lease: Lease) -> History:
    """Return what earlier leases of this chunk left behind."""
    params = {"batch_id": lease.batch_id, "seq": lease.seq}
    state = (await db.fetch("work.history", SQL["checkpoint_state"], params))[0]
    return History(
        segments=await segments(db, lease.batch_id, lease.seq),
        unended=Unended(
            attempts={place: Attempts(counted, uncounted) for place, counted, uncounted in state.line_attempts or ()},
            suspects=frozenset(state.suspects or ()),
            on_trial=frozenset(state.on_trial or ()),
        ),
    )


async def segments(db: Database, batch_id: BatchId, seq: int) -> list[Segment]:
    """Return a chunk's kept segments, in the order they were written."""
    rows = await db.fetch("work.segments", SQL["segments"], {"batch_id": batch_id, "seq": seq})
    return [
        Segment(
            segment_no=row.segment_no,
            object_key=row.object_key,
            out_bytes=row.out_bytes,
            err_bytes=row.err_bytes,
            sha256=row.sha256,
            ended=tuple(unpack_places(row.ended)),
            succeeded=row.succeeded,
            errored=row.errored,
            usage=Usage(row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens),
        )
        for row in rows
    ]


async def forget_segment(db: Database, lease: Lease, segment_no: int) -> bool:
    """Have a segment's lines run again, because its object is not what was written; False when the lease is lost."""
    params = {"batch_id": lease.batch_id, "seq": lease.seq, "token": lease.token, "segment_no": segment_no}
    return bool(await db.fetch("work.forget_segment", SQL["forget_segment"], params))


def _written(attempts: dict[int, Attempts]) -> str | None:
    """Write the attempts as JSON: (place, counted, uncounted) each."""
    if not attempts:
        return None
    return msgspec.json.encode([(place, *counts) for place, counts in attempts.items()]).decode()
