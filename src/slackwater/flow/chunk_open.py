"""Opens a leased chunk: its lines are read, and what earlier leases of it finished is taken over."""

from typing import Final

import msgspec

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import Lease
from slackwater.db.session import Database
from slackwater.domain.errors import ObjectMissing, Unavailable
from slackwater.domain.rewriting import operator_prefix
from slackwater.flow.chunk_checkpoint import take_over
from slackwater.flow.chunk_run import ChunkRun

CANNOT_OPEN: Final = (ObjectMissing, Unavailable, ValueError, msgspec.DecodeError)
"""What :func:`open_chunk` raises: the object or the database is away, gone, or not what was planned."""
_BATCH_PRIORITY: Final = 100
"""vLLM runs smaller numbers first, and real-time requests have 0."""


async def open_chunk(
    db: Database, store: BlobStore, lease: Lease, *, knows_priority: bool, started_at: float
) -> ChunkRun:
    """Return the run of a lease, ready to be fed. ``started_at``: seconds of the worker's clock."""
    source = await store.get_range(lease.source_key, lease.byte_start, lease.byte_length)
    prefix = operator_prefix(priority=_BATCH_PRIORITY, cache_salt=lease.tenant_id) if knows_priority else b""
    run = ChunkRun(lease, source, operator_prefix=prefix, started_at=started_at)
    await take_over(db, store, run)
    return run
