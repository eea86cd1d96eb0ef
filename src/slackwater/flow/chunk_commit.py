"""The commit of one chunk: new objects first, then one guarded statement that flips the chunk's pointer to them."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import ChunkResult, commit_chunk, was_committed
from slackwater.db.queue.results import ResultObject
from slackwater.db.session import Database
from slackwater.domain.errors import Unavailable
from slackwater.flow.chunk_run import ChunkRun

_LOG: Final = structlog.get_logger("slackwater.work")
_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0

T = TypeVar("T")


async def commit_run(db: Database, store: BlobStore, run: ChunkRun, *, still_held: Callable[[], bool]) -> bool:
    """Write a complete run's results and flip its pointer; False when the lease was lost.

    A store or a database that does not answer is asked again for as long as the lease is ``still_held``: the work is
    done, and only its last step is missing. Written objects of a lost lease are left to the sweep.
    """
    assert run.complete
    output, errors = await asyncio.gather(
        _patiently(lambda: _put(store, _output_key(run), run.output()), still_held),
        _patiently(lambda: _put(store, _errors_key(run), run.errors()), still_held),
    )
    result = ChunkResult(
        succeeded=run.succeeded,
        errored=run.errored,
        cancelled=run.cancelled,
        expired=run.expired,
        usage=run.usage,
        output=output,
        errors=errors,
    )
    # A commit whose answer was lost stands, and is refused when it is asked for again.
    return await _patiently(lambda: commit_chunk(db, run.lease, result), still_held) or await _patiently(
        lambda: was_committed(db, run.lease), still_held
    )


def _output_key(run: ChunkRun) -> str:
    return keys.part_output_key(run.lease.batch_id, run.lease.seq, run.lease.token)


def _errors_key(run: ChunkRun) -> str:
    return keys.part_errors_key(run.lease.batch_id, run.lease.seq, run.lease.token)


async def _put(store: BlobStore, key: str, data: bytes) -> ResultObject | None:
    """Write one result object; there is none without lines."""
    if not data:
        return None
    written = await store.put(key, data, stage="work.part")
    return ResultObject(key=key, size_bytes=written.size_bytes, sha256=written.sha256, crc32=zlib.crc32(data))


async def _patiently(act: Callable[[], Awaitable[T]], still_held: Callable[[], bool]) -> T:
    """Repeat an idempotent step while what it needs is away and the lease is held."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await act()
        except Unavailable as error:
            if not still_held():
                raise
            _LOG.warning("commit waits", cause=str(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
