"""The writer the rest of the service sees: a backend's writer between the two halves of the seam."""

from types import TracebackType
from typing import Self

from slackwater.blobs.backend import BackendWriter
from slackwater.blobs.protocol import Written
from slackwater.blobs.watch import Watch
from slackwater.domain.errors import StoreUnavailable


class SeamedWriter:
    """A BlobWriter. The seam's ``before`` runs when the block is entered, its ``after`` when ``finish`` is durable."""

    def __init__(self, writer: BackendWriter, watch: Watch, *, stage: str, key: str) -> None:
        self._writer = writer
        self._watch = watch
        self._stage = stage
        self._key = key
        self._finished = False

    async def write(self, data: bytes | memoryview) -> None:
        """Append bytes; waits when the store is slower than the caller. Raises StoreUnavailable."""
        try:
            await self._writer.write(data)
        except StoreUnavailable:
            self._watch.failed("write")
            raise

    async def finish(self) -> Written:
        """Make the object visible and durable. Raises StoreUnavailable, and then nothing is left of it."""
        with self._watch.timed("write") as moved:
            written = await self._writer.finish()
            moved.size_bytes = written.size_bytes
        self._finished = True
        await self._watch.after(self._stage, self._key)
        return written

    async def __aenter__(self) -> Self:
        await self._watch.before(self._stage, self._key)
        await self._writer.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            await self._writer.discard()
