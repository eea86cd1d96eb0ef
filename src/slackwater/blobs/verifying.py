"""Reading stored bytes and believing them only when they are those that were written.

A damaged object is told by its size and its CRC-32, which were taken from the bytes before they were stored and are
kept in PostgreSQL. CRC-32 is what costs least here (twice as fast as SHA-256 with the processor's help, several times
without); whoever damages an object on purpose is not what it is for.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from slackwater.blobs.protocol import BlobStore, Checksum
from slackwater.domain.errors import ObjectDamaged, ObjectMissing

_PAUSES_SECONDS: Final = (0.1, 0.5)
"""Between the reads of an object that seems lost: one broken answer must not cost anybody their results."""

T = TypeVar("T")


def checksum_of(data: bytes) -> Checksum:
    """Take the checksum of bytes in memory."""
    return Checksum(len(data), zlib.crc32(data))


def require_intact(key: str, wanted: Checksum, found: Checksum) -> None:
    """Raise ObjectDamaged where what was found is not what was wanted."""
    same_bytes = wanted.crc32 is None or wanted.crc32 == found.crc32
    if wanted.size_bytes != found.size_bytes or not same_bytes:
        raise ObjectDamaged(f"The object {key} in the store is not what was written.")


async def read_range(store: BlobStore, key: str, start: int, wanted: Checksum) -> bytes:
    """Read a run of an object's bytes that must be intact.

    Raises ObjectMissing or ObjectDamaged once several reads in a row have said so, StoreUnavailable at once.
    """

    async def read() -> bytes:
        data = await store.get_range(key, start, wanted.size_bytes)
        require_intact(key, wanted, checksum_of(data))
        return data

    return await _insist(read)


async def read_intact(store: BlobStore, key: str, wanted: Checksum) -> AsyncGenerator[bytes]:
    """Stream a whole object. Raises ObjectDamaged behind its last byte where it is not intact, and ObjectMissing."""
    crc32 = size_bytes = 0
    async for piece in store.read(key):
        crc32 = zlib.crc32(piece, crc32)
        size_bytes += len(piece)
        yield piece
    require_intact(key, wanted, Checksum(size_bytes, crc32))


async def verify(store: BlobStore, key: str, wanted: Checksum) -> None:
    """Read a whole object, in flat memory, and raise as :func:`read_range` does where it is not intact."""

    async def read() -> None:
        async for _ in read_intact(store, key, wanted):
            pass

    await _insist(read)


async def _insist(read: Callable[[], Awaitable[T]], pauses: Sequence[float] = _PAUSES_SECONDS) -> T:
    """Read again where something seems lost; what the last read says is so."""
    for pause in pauses:
        try:
            return await read()
        except ObjectMissing:
            await asyncio.sleep(pause)
    return await read()
