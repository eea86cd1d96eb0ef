"""The custom ids of a planned chunk: from the plan's index, or from its lines where the index does not have them."""

from typing import Final, TypeAlias

import msgspec
import structlog

from slackwater.blobs.protocol import BlobStore, Checksum
from slackwater.blobs.verifying import read_range
from slackwater.db.queue.finishing import UnrunChunk
from slackwater.db.queue.leases import Lease
from slackwater.domain.errors import ObjectMissing
from slackwater.domain.request_lines import custom_ids

_LOG: Final = structlog.get_logger("slackwater.chunks")
_NAMELESS: Final = b"null"
_decode_entry: Final = msgspec.json.Decoder(tuple[int, msgspec.Raw, int, int, int]).decode


PlannedLines: TypeAlias = Lease | UnrunChunk
"""A chunk's lines, as whoever runs them and whoever does not know them."""


async def read_custom_ids(store: BlobStore, chunk: PlannedLines) -> list[bytes]:
    """Return the custom id of each line of a chunk as JSON, in order; null for one that is lost with all else of it.

    Reads the index, which is a fraction of the lines and there when they are lost. Raises StoreUnavailable.
    """
    for read in (_from_index, _from_lines):
        try:
            found = await read(store, chunk)
        except (ObjectMissing, ValueError, msgspec.DecodeError) as error:
            _LOG.error("names of lines are lost", object_key=chunk.source_key, chunk=chunk.seq, cause=str(error))
            continue
        if found is not None and len(found) == chunk.n_requests:
            return found
    return [_NAMELESS] * chunk.n_requests


async def read_lines(store: BlobStore, chunk: PlannedLines) -> bytes:
    """Return a chunk's lines as they were planned. Raises ObjectMissing, ObjectDamaged, StoreUnavailable."""
    return await read_range(store, chunk.source_key, chunk.byte_start, Checksum(chunk.byte_length, chunk.crc32))


async def _from_index(store: BlobStore, chunk: PlannedLines) -> list[bytes] | None:
    """Read the ids of the index; None where the chunk has no entries there."""
    if chunk.index is None:
        return None
    key, start, size_bytes, crc32 = chunk.index
    entries = await read_range(store, key, start, Checksum(size_bytes, crc32))
    return [bytes(_decode_entry(entry)[1]) for entry in entries.splitlines()]


async def _from_lines(store: BlobStore, chunk: PlannedLines) -> list[bytes] | None:
    """Read the ids of the lines themselves."""
    return custom_ids(await read_lines(store, chunk), at_start=chunk.byte_start == 0)
