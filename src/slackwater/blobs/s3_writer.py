"""Writing one S3 object piece by piece: one request while it is small, a multipart upload once it is not."""

import asyncio
import hashlib
from collections.abc import Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from slackwater.blobs.failures import DRIVER_ERRORS, writing
from slackwater.blobs.protocol import Written
from slackwater.blobs.streams import settled

HAND_OVER_BYTES: Final = 1 << 20
# Objects up to this size are one PUT; obstore's parts are always S3's minimum of 5 MiB.
SINGLE_PUT_BYTES: Final = 8 << 20
# Three parts in memory: two on their way, one being filled. More would cost 5 MiB each and gain nothing here.
PARTS_IN_FLIGHT: Final = 2


class S3Writer:
    """A BackendWriter that holds about 16 MiB at most."""

    def __init__(self, store: S3Store, key: str, pool: Executor) -> None:
        self._store = store
        self._key = key
        self._pool = pool
        self._writer = obstore.open_writer_async(
            store, key, buffer_size=SINGLE_PUT_BYTES, max_concurrency=PARTS_IN_FLIGHT
        )
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._running: asyncio.Future[Any] | None = None
        self._closing = False
        self._finished = False

    async def open(self) -> None:
        """Do nothing: an upload begins when there is more than one request can carry."""

    async def write(self, data: bytes | memoryview) -> None:
        """Gather bytes; when there are enough, hash them in a thread and hand them to the upload."""
        self._gathered.append(data if isinstance(data, bytes) else bytes(data))
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= HAND_OVER_BYTES:
            await self._hand_over()

    async def finish(self) -> Written:
        """Upload the rest and make the object visible; S3 is durable once it says so."""
        if self._gathered:
            await self._hand_over()
        self._closing = True
        with writing(self._key):
            await self._to_the_end(self._writer.close())
        self._finished = True
        return Written(size_bytes=self._size_bytes, sha256=self._hash.hexdigest())

    async def discard(self) -> None:
        """Abort the upload, or remove the object if it was already being completed.

        Best effort: a server that fails now keeps invisible parts until the bucket's lifecycle rule removes them.
        """
        if self._finished:
            return
        if self._running is not None:
            await settled(self._running)
        with suppress(*DRIVER_ERRORS):
            if self._closing:
                await obstore.delete_async(self._store, self._key)
            else:
                await self._writer.__aexit__(BaseError, None, None)

    async def _hand_over(self) -> None:
        pieces, self._gathered, self._gathered_bytes = self._gathered, [], 0
        data = await asyncio.get_running_loop().run_in_executor(self._pool, self._fold, pieces)
        with writing(self._key):
            await self._to_the_end(self._writer.write(data))

    async def _to_the_end(self, step: Coroutine[Any, Any, Any]) -> None:
        # A cancelled obstore call forgets the upload it was about to begin or complete, and with it how to abort it.
        self._running = asyncio.ensure_future(step)
        await asyncio.shield(self._running)

    def _fold(self, pieces: list[bytes]) -> bytes:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._hash.update(data)
        self._size_bytes += len(data)
        return data
