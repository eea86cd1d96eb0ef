"""The objects that checkpoints wrote: read whole, and only believed when they are what was written."""

import hashlib
from typing import Final

import structlog

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.checkpoints import Segment
from slackwater.domain.errors import ObjectMissing

_LOG: Final = structlog.get_logger("slackwater.segments")


async def read_segment(store: BlobStore, segment: Segment) -> tuple[bytes, bytes] | None:
    """Return a segment's output lines and error lines; None where its object is gone or damaged. Raises Unavailable."""
    try:
        data = await store.get(segment.object_key)
    except ObjectMissing:
        data = b""
    if hashlib.sha256(data).hexdigest() != segment.sha256:
        _LOG.error("segment is gone or damaged", object_key=segment.object_key)
        return None
    return data[: segment.out_bytes], data[segment.out_bytes :]
