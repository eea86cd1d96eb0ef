"""Checkpoints of one chunk: what is finished goes to the store, a row names it, and the next lease runs the rest.

The object first, then the row, and the row only under the lease's token: a checkpoint of a lost lease keeps nothing.
One that may or may not have been written is written again as it was, before anything that ended later: a line must not
stand in two segments.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.checkpoints import (
    Segment,
    Unended,
    checkpoint_chunk,
    forget_segment,
    history,
)
from slackwater.db.session import Database
from slackwater.domain.line_errors import ENGINE_KILLED
from slackwater.flow.chunk_run import ChunkRun, Finished
from slackwater.flow.chunk_segments import read_segment

_LOSSES_BEFORE_SUSPICION: Final = 2
"""Leases of a chunk that ended with their worker before its lines are suspected of ending workers."""
_LOSSES_BEFORE_CONVICTION: Final = 4
"""The same, before one line is blamed that ran alone the last time: a worker may also be lost by chance."""
_NOTHING: Final = Unended(attempts={}, suspects=frozenset(), on_trial=frozenset())


@dataclass(slots=True)
class _Pending:
    """A checkpoint on its way."""

    number: int
    finished: Finished | None
    unended: Unended


class Checkpoints:
    """The checkpoints of one run, one at a time."""

    def __init__(self, db: Database, store: BlobStore, run: ChunkRun) -> None:
        self._db = db
        self._store = store
        self._run = run
        self._number = run.lease.checkpoints
        self._pending: _Pending | None = None
        self._last: Unended | None = None
        self._one_at_a_time = asyncio.Lock()

    async def keep(self, *, handing_over: bool = False) -> bool:
        """Keep what ended since the last time; False where nothing did, or the lease is lost.

        ``handing_over``: nobody runs the chunk from here on, so that lines on trial are suspects again. Raises
        Unavailable; the same is then kept the next time.
        """
        async with self._one_at_a_time:
            return await self._keep(handing_over=handing_over)

    async def _keep(self, *, handing_over: bool) -> bool:
        if self._pending is not None and not await self._write(self._pending):
            return False
        unended = _unended(self._run, handing_over=handing_over)
        finished = self._run.cut()
        if finished is None and unended == (self._last or _NOTHING):
            return False
        self._number += 1
        self._pending = _Pending(self._number, finished, unended)
        return await self._write(self._pending)

    async def _write(self, pending: _Pending) -> bool:
        """Write one checkpoint: the object, then the row."""
        segment = None if pending.finished is None else await self._put(pending.number, pending.finished)
        stands = await checkpoint_chunk(
            self._db, self._run.lease, checkpoint_no=pending.number, segment=segment, unended=pending.unended
        )
        self._pending, self._last = None, pending.unended
        return stands

    async def _put(self, number: int, finished: Finished) -> Segment:
        """Write one segment's object."""
        lease = self._run.lease
        key = keys.segment_key(lease.batch_id, lease.seq, lease.token, number)
        written = await self._store.put(key, finished.output + finished.errors, stage="work.segment")
        return Segment(
            segment_no=number,
            object_key=key,
            out_bytes=len(finished.output),
            err_bytes=len(finished.errors),
            sha256=written.sha256,
            ended=finished.places,
            succeeded=finished.succeeded,
            errored=finished.errored,
            usage=finished.usage,
        )


def _unended(run: ChunkRun, *, handing_over: bool) -> Unended:
    """What a run's unfinished lines have behind them."""
    suspects, on_trial = frozenset(run.suspects), frozenset(run.on_trial)
    if handing_over:
        suspects, on_trial = suspects | on_trial, frozenset()
    return Unended(attempts=run.all_attempts, suspects=suspects, on_trial=on_trial)


async def take_over(db: Database, store: BlobStore, run: ChunkRun) -> None:
    """Have a fresh run go on where earlier leases of its chunk stopped. Raises Unavailable."""
    lease = run.lease
    if lease.checkpoints:
        past = await history(db, lease)
        for segment in past.segments:
            read = await read_segment(store, segment)
            if read is not None:
                run.adopt(_finished(segment, *read))
            elif not await forget_segment(db, lease, segment.segment_no):
                return  # The lease is lost: the next sync says so.
        for place, attempts in past.unended.attempts.items():
            run.tried(place, attempts)
        # A worker that died in a trial narrowed the suspects with it: who was not on trial is cleared.
        run.suspect(past.unended.on_trial or past.unended.suspects)
        if lease.attempts > _LOSSES_BEFORE_CONVICTION and len(past.unended.on_trial) == 1:
            _convict(run)
    if lease.attempts > _LOSSES_BEFORE_SUSPICION and not run.suspects:
        run.suspect(run.unended())


def _convict(run: ChunkRun) -> None:
    """End the one line that ran alone when a worker was lost, once that has happened to its chunk too often."""
    for place in tuple(run.suspects):
        run.suspects.discard(place)
        run.fail(place, ENGINE_KILLED)


def _finished(segment: Segment, output: bytes, errors: bytes) -> Finished:
    """Turn a stored segment back into what it was cut from."""
    return Finished(
        places=segment.ended,
        output=output,
        errors=errors,
        succeeded=segment.succeeded,
        errored=segment.errored,
        usage=segment.usage,
    )
