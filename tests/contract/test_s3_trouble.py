"""What an S3 server and the way to it can do wrong, before a real server: nothing is lost, and nothing is left."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from slackwater.blobs.store import open_store
from slackwater.inference.simulated_server import stop_listening
from tests.s3 import BUCKET, S3Server

SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\nconnection: close\r\ncontent-length: 62\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>"
)
PASSED_BYTES = 300_000
"""How much of a broken connection passes: some of a part, or of an object."""


class Proxy:
    """Passes connections on, and has a fault happen to each of the next ones."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.removeprefix("http://").rpartition(":")
        self.faults: list[str] = []
        self.happened: list[str] = []
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            await stop_listening(server)
            for serving in self._serving:
                serving.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        with suppress(asyncio.CancelledError):
            await serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault:
            self.happened.append(fault)
        if fault == "slow down":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(SLOW_DOWN.replace(b"62", b"%d" % (len(SLOW_DOWN) - SLOW_DOWN.index(b"<Error>"))))
            await writer.drain()
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(self._host, int(self._port))
        limits = {"reset sending": (PASSED_BYTES, None), "reset reading": (None, PASSED_BYTES)}
        sent, read = limits.get(fault, (None, None))
        ways = [
            asyncio.create_task(_pass(reader, up_writer, sent)),
            asyncio.create_task(_pass(up_reader, writer, read)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, up_writer):
                end.transport.abort()
                with suppress(ConnectionError):
                    await end.wait_closed()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> None:
    """Pass bytes on until an end, or until so many have passed."""
    passed = 0
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
            passed += len(data)
            if limit is not None and passed >= limit:
                return


@pytest.mark.parametrize("fault", ["slow down", "reset sending", "reset reading"])
async def test_passing_trouble_of_s3_costs_no_byte(seaweedfs: S3Server, fault: str) -> None:
    proxy = Proxy(seaweedfs.endpoint)
    data = random.Random(3).randbytes(20 << 20)
    url = seaweedfs.new_url()
    async with proxy.listening() as endpoint:
        store = open_store(url, settings=replace(seaweedfs.settings(), endpoint=endpoint, max_retries=4))
        if fault != "reset reading":
            proxy.faults = [fault, fault]
        async with store.writer("inputs/large", stage="test") as writer:
            for start in range(0, len(data), 1 << 20):
                await writer.write(data[start : start + (1 << 20)])
            written = await writer.finish()
        await store.close()
        store = open_store(url, settings=replace(seaweedfs.settings(), endpoint=endpoint, max_retries=4))
        if fault != "reset sending":
            proxy.faults = [fault, fault]

        read = b"".join([piece async for piece in store.read("inputs/large")])

        await store.close()
    assert written.size_bytes == len(data)
    assert read == data
    assert len(proxy.happened) >= 2
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    with seaweedfs.client() as client:
        assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{prefix}/")
