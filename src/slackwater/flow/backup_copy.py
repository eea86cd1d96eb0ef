"""Copying objects between a store and a backup: several at a time, each in pieces, with its digest."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol, TypeVar

from slackwater.blobs.protocol import BlobStore, Written
from slackwater.domain.errors import ObjectMissing

T = TypeVar("T")

_AT_ONCE: Final = 8
"""Objects under way: enough to hide the way to a store behind the others, at some MiB each."""


class CopyObserver(Protocol):
    """Hears how far a backup or a restore is."""

    def begun(self, phase: str, *, count: int | None = None, size_bytes: int | None = None) -> None:
        """A phase begins; what it has to do, where that is known."""
        ...

    def moved(self, *, count: int, size_bytes: int) -> None:
        """So much more of the phase is done."""
        ...


async def each(items: Iterator[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Do the same with every item, a few at a time. The first error ends it, once the others under way have ended."""

    async def take() -> None:
        for item in items:
            await act(item)

    tasks = [asyncio.create_task(take()) for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_object(store: BlobStore, key: str) -> Written | None:
    """Read an object whole and return its size and digest; None where there is none."""
    return await _stream(store, key, _nowhere)


async def copy_object(
    source: BlobStore, target: BlobStore, key: str, *, stage: str, sha256: str | None
) -> Written | None:
    """Copy one object and return what was read; None where the source has no such object.

    Nothing is written where its digest is not the one asked for; ``sha256`` None takes whatever it is.
    """
    async with target.writer(key, stage=stage) as writer:
        read = await _stream(source, key, writer.write)
        if read is not None and sha256 in {None, read.sha256}:
            await writer.finish()
    return read


async def _stream(store: BlobStore, key: str, write: Callable[[bytes], Awaitable[None]]) -> Written | None:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        async for piece in store.read(key):
            digest.update(piece)
            size_bytes += len(piece)
            await write(piece)
    except ObjectMissing:
        return None
    return Written(size_bytes=size_bytes, sha256=digest.hexdigest())


async def _nowhere(piece: bytes) -> None:
    """Keep nothing."""
