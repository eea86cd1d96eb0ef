"""Opens a leased chunk: its lines are read, and what earlier leases of it finished is taken over."""

from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import Lease
from slackwater.db.session import Database
from slackwater.domain.errors import ObjectMissing
from slackwater.domain.line_errors import INPUT_LOST
from slackwater.domain.rewriting import operator_prefix
from slackwater.flow.chunk_checkpoint import take_over
from slackwater.flow.chunk_ids import read_custom_ids, read_lines
from slackwater.flow.chunk_run import ChunkRun

_LOG: Final = structlog.get_logger("slackwater.chunks")
_BATCH_PRIORITY: Final = 100
"""vLLM runs smaller numbers first, and real-time requests have 0."""


async def open_chunk(
    db: Database, store: BlobStore, lease: Lease, *, knows_priority: bool, started_at: float
) -> ChunkRun:
    """Return the run of a lease, ready to be fed. ``started_at``: seconds of the worker's clock.

    Lines that are lost or damaged in the store have ended with their error; what is kept of them stays. Raises
    Unavailable.
    """
    prefix = operator_prefix(priority=_BATCH_PRIORITY, cache_salt=lease.tenant_id) if knows_priority else b""
    try:
        source = await read_lines(store, lease)
        run = ChunkRun(lease, source, operator_prefix=prefix, started_at=started_at)
    except (ObjectMissing, ValueError, msgspec.DecodeError) as error:
        _LOG.error("input is lost", batch_id=lease.batch_id, chunk=lease.seq, cause=str(error))
        run = await open_to_close(db, store, lease, started_at=started_at)
        for place in run.unended():
            run.fail(place, INPUT_LOST)
        return run
    await take_over(db, store, run)
    return run


async def open_to_close(db: Database, store: BlobStore, lease: Lease, *, started_at: float = 0.0) -> ChunkRun:
    """Return the run of a lease of which no further line will be sent: its bodies are not read. Raises Unavailable."""
    source = _without_bodies(await read_custom_ids(store, lease))
    run = ChunkRun(lease, source, operator_prefix=b"", started_at=started_at)
    await take_over(db, store, run)
    return run


def _without_bodies(custom_ids: Sequence[bytes]) -> bytes:
    """Write lines that have their names and nothing to run."""
    return b"".join(b'{"custom_id":%b,"body":{}}\n' % custom_id for custom_id in custom_ids)
