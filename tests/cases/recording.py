"""Engines and stores that take note of what is asked of them, or do it wrong when they are told to."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.blobs.protocol import BlobStore, BlobWriter, Checksum, StoredObject, Written
from slackwater.inference.protocol import Engine, EngineLoad, Reply, ServedModel


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request as it reached the engine."""

    path: str
    body: bytes
    at: float
    """When, on the monotonic clock in seconds."""

    @property
    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.body)
        return fields


class RecordingEngine(Engine):
    """An engine before another that keeps every body, and the order in which they were answered."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.sent: list[Sent] = []
        self.finished: list[bytes] = []

    @property
    def knows_priority(self) -> bool:
        return self.inner.knows_priority

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        self.sent.append(Sent(path=path, body=body, at=time.monotonic()))
        reply = await self.inner.post(path, body, timeout_seconds=timeout_seconds)
        self.finished.append(body)
        return reply

    async def models(self) -> list[ServedModel]:
        return await self.inner.models()

    async def ready(self) -> bool:
        return await self.inner.ready()

    async def load(self) -> EngineLoad:
        return await self.inner.load()

    async def revive(self) -> None:
        await self.inner.revive()

    async def close(self) -> None:
        await self.inner.close()

    def forget(self) -> None:
        """Begin a new record."""
        self.sent.clear()
        self.finished.clear()


Fault = Callable[[], Awaitable[None]]


class WatchedStore(BlobStore):
    """A store before another: notes the keys that are read, and runs what a test put before or after a step.

    ``before`` and ``after`` are keyed by the stage of a put, a join or a deletion; what they raise is
    what the caller gets.
    """

    def __init__(self, inner: BlobStore) -> None:
        self.inner = inner
        self.read_keys: list[str] = []
        self.before: dict[str, Fault] = {}
        self.after: dict[str, Fault] = {}

    async def put(self, key: str, data: bytes, *, stage: str) -> Written:
        await self._run(self.before, stage)
        written = await self.inner.put(key, data, stage=stage)
        await self._run(self.after, stage)
        return written

    def writer(self, key: str, *, stage: str) -> BlobWriter:
        return self.inner.writer(key, stage=stage)

    async def get(self, key: str) -> bytes:
        self.read_keys.append(key)
        return await self.inner.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self.read_keys.append(key)
        return await self.inner.get_range(key, start, length)

    async def size(self, key: str) -> int:
        self.read_keys.append(key)
        return await self.inner.size(key)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        self.read_keys.append(key)
        async for piece in self.inner.read(key, start=start, length=length):
            yield piece

    async def join(
        self, key: str, parts: Sequence[str], *, stage: str, checksums: Sequence[Checksum] | None = None
    ) -> Written:
        await self._run(self.before, stage)
        return await self.inner.join(key, parts, stage=stage, checksums=checksums)

    async def delete(self, keys: Sequence[str], *, stage: str) -> None:
        await self._run(self.before, stage)
        await self.inner.delete(keys, stage=stage)
        await self._run(self.after, stage)

    async def _run(self, faults: dict[str, Fault], stage: str) -> None:
        if stage in faults:
            await faults[stage]()

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        return self.inner.list(prefix)

    async def close(self) -> None:
        await self.inner.close()

    async def keys(self, prefix: str) -> set[str]:
        """Return the keys of everything below a prefix."""
        return {stored.key async for stored in self.inner.list(prefix)}
