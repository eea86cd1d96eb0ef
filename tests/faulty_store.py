"""A store that misbehaves: every operation of another one, with what a test has it do in between."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Self

from slackwater.blobs.protocol import BlobStore, BlobWriter, Checksum, StoredObject, Written
from slackwater.domain.errors import StoreUnavailable

Fault = Callable[[str, int], Exception | None]
"""Asked with an operation's key and how often the operation was asked for so far; what it returns is raised."""


def first(times: int, error: Exception | None = None) -> Fault:
    """Fail the first so many times."""
    raised = error or StoreUnavailable("The object store did not do as asked. Try again later.")
    return lambda _key, tries: raised if tries <= times else None


class FaultyStore(BlobStore):
    """``faults`` by operation: put, write, finish, get, get_range, read, join, delete."""

    def __init__(self, inner: BlobStore) -> None:
        self.inner = inner
        self.faults: dict[str, Fault] = {}
        self.short_ranges = 0
        """How many ranged reads still end a byte early."""
        self.delay_seconds = 0.0
        """How long every read takes."""
        self.read_pieces: int | None = None
        """After how many pieces of a stream it breaks; None: it never does."""
        self.failed: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()

    def check(self, op: str, key: str) -> None:
        if op not in self.faults:
            return
        self._tries[op] += 1
        error = self.faults[op](key, self._tries[op])
        if error is not None:
            self.failed[op] += 1
            raise error

    async def put(self, key: str, data: bytes, *, stage: str) -> Written:
        self.check("put", key)
        return await self.inner.put(key, data, stage=stage)

    def writer(self, key: str, *, stage: str) -> "FaultyWriter":
        return FaultyWriter(self, self.inner.writer(key, stage=stage), key)

    async def get(self, key: str) -> bytes:
        self.check("get", key)
        await asyncio.sleep(self.delay_seconds)
        return await self.inner.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self.check("get_range", key)
        await asyncio.sleep(self.delay_seconds)
        data = await self.inner.get_range(key, start, length)
        if self.short_ranges:
            self.short_ranges -= 1
            return data[:-1]
        return data

    async def size(self, key: str) -> int:
        return await self.inner.size(key)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        self.check("read", key)
        pieces = 0
        async for piece in self.inner.read(key, start=start, length=length):
            if pieces == self.read_pieces:
                raise StoreUnavailable("The connection to the object store broke.")
            yield piece
            pieces += 1

    async def join(
        self, key: str, parts: Sequence[str], *, stage: str, checksums: Sequence[Checksum] | None = None
    ) -> Written:
        self.check("join", key)
        return await self.inner.join(key, parts, stage=stage, checksums=checksums)

    async def delete(self, keys: Sequence[str], *, stage: str) -> None:
        self.check("delete", keys[0] if keys else "")
        await self.inner.delete(keys, stage=stage)

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        return self.inner.list(prefix)

    async def close(self) -> None:
        await self.inner.close()


class FaultyWriter:
    """A writer of a faulty store."""

    def __init__(self, store: FaultyStore, inner: BlobWriter, key: str) -> None:
        self._store = store
        self._inner = inner
        self._key = key

    async def write(self, data: bytes | memoryview) -> None:
        self._store.check("write", self._key)
        await self._inner.write(data)

    async def finish(self) -> Written:
        self._store.check("finish", self._key)
        return await self._inner.finish()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
