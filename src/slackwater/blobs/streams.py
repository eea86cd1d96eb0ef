"""Reading an object, or many one after another, in flat memory with the next bytes already on their way."""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from slackwater.blobs.backend import Fetched
from slackwater.blobs.protocol import Checksum
from slackwater.blobs.verifying import require_intact
from slackwater.domain.errors import StoreUnavailable

Fetch: TypeAlias = Callable[[str, int, int], Coroutine[Any, Any, Fetched]]
"""A backend's ``fetch``: key, start and length in bytes."""


async def pieces_of(
    fetch: Fetch,
    key: str,
    *,
    piece_bytes: int,
    start: int = 0,
    length: int | None = None,
    first: Fetched | None = None,
) -> AsyncGenerator[bytes]:
    """Yield an object's bytes from ``start`` piece by piece, the next piece being fetched while one is used.

    Yields exactly ``length`` bytes, or what there is up to the object's end; a piece that is shorter than the object's
    size promises raises StoreUnavailable, a vanished object ObjectMissing: never a short stream that ends in peace.
    ``first`` is the piece at ``start`` if the caller has fetched it already.
    """
    wanted = piece_bytes if length is None else min(length, piece_bytes)
    if not wanted:
        return
    piece = first or await fetch(key, start, wanted)
    end = piece.total_bytes if length is None else min(start + length, piece.total_bytes)
    position = start
    ahead: asyncio.Task[Fetched] | None = None
    try:
        while position < end:
            wanted = min(piece_bytes, end - position)
            if len(piece.data) != wanted:
                raise StoreUnavailable(f"The object {key} is shorter than the store says. Try again later.")
            position += wanted
            if position < end:
                ahead = asyncio.create_task(fetch(key, position, min(piece_bytes, end - position)))
            yield piece.data
            if ahead is not None:
                piece, ahead = await ahead, None
    finally:
        if ahead is not None:
            ahead.cancel()
            await settled(ahead)


async def parts_in_order(
    fetch: Fetch,
    keys: Sequence[str],
    *,
    piece_bytes: int,
    ahead: int,
    checksums: Sequence[Checksum] | None = None,
) -> AsyncGenerator[bytes]:
    """Yield the bytes of many objects one after another, the first pieces of the next ``ahead`` being fetched.

    Raises ObjectDamaged behind the last byte of one that is not what its checksum says.
    """
    upcoming = deque[asyncio.Task[Fetched]]()
    try:
        for index, key in enumerate(keys):
            for later in keys[index + len(upcoming) : index + ahead]:
                upcoming.append(asyncio.create_task(fetch(later, 0, piece_bytes)))
            first = await upcoming.popleft()
            async with aclosing(pieces_of(fetch, key, piece_bytes=piece_bytes, first=first)) as pieces:
                crc32 = size_bytes = 0
                async for piece in pieces:
                    crc32 = zlib.crc32(piece, crc32)
                    size_bytes += len(piece)
                    yield piece
            if checksums is not None:
                require_intact(key, checksums[index], Checksum(size_bytes, crc32))
    finally:
        for task in upcoming:
            task.cancel()
            await settled(task)


async def settled(future: asyncio.Future[Any]) -> None:
    """Wait until it is over, whatever comes of it: nobody wants its result any more."""
    await asyncio.wait((future,))
    if not future.cancelled():
        future.exception()  # an error that nobody looks at would be logged as lost
