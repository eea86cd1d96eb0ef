"""Writing one local object piece by piece: hashing and the disk in a thread, while the next bytes are received."""

import asyncio
from concurrent.futures import Executor
from typing import Final

from slackwater.blobs.failures import writing
from slackwater.blobs.protocol import Written
from slackwater.blobs.staging import StagedFile
from slackwater.blobs.streams import settled

HAND_OVER_BYTES: Final = 1 << 20


class LocalWriter:
    """A BackendWriter that holds at most what is being gathered and what is being written, about 1 MiB each."""

    def __init__(self, staged: StagedFile, key: str, pool: Executor) -> None:
        self._staged = staged
        self._key = key
        self._pool = pool
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._handed_over: asyncio.Future[bool] | None = None

    async def open(self) -> None:
        """Do nothing: the file comes into being with its first bytes."""

    async def write(self, data: bytes | memoryview) -> None:
        """Gather bytes; when there are enough, wait for the last ones to be on their way and hand these over."""
        # Kept as they came, not copied into a buffer: the thread writes many pieces with one call.
        self._gathered.append(data if isinstance(data, bytes) else bytes(data))
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= HAND_OVER_BYTES:
            await self._hand_over()

    async def finish(self) -> Written:
        """Write the rest, make the object durable and give it its name."""
        await self._hand_over()
        await self._settle()
        with writing(self._key):
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._staged.publish, self._key)

    async def discard(self) -> None:
        """Remove the file; bytes that are being written go with it."""
        if self._handed_over is not None:
            await settled(self._handed_over)
        with writing(self._key):
            await asyncio.get_running_loop().run_in_executor(self._pool, self._staged.discard)

    async def _hand_over(self) -> None:
        await self._settle()
        pieces, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self._handed_over = asyncio.get_running_loop().run_in_executor(self._pool, self._staged.append, pieces)

    async def _settle(self) -> None:
        if self._handed_over is not None:
            with writing(self._key):
                await self._handed_over
            self._handed_over = None
