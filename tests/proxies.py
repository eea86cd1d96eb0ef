"""A TCP proxy before PostgreSQL, the store or an engine, that a test can cut: reset, silent or slow."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

from slackwater.inference.simulated_server import stop_listening

How = Literal["reset", "silent", "slow"]
_PIECE_BYTES: Final = 65_536
_SLOW_PIECE_SECONDS: Final = 0.05
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Proxy:
    """A proxy that runs. Cut ``reset``, it ends every connection, new ones too; ``silent``, nothing passes.

    Whoever was connected while it was silent is reset when it heals, as by a peer that has forgotten the connection.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._how: How | None = None
        self._healed = asyncio.Event()
        self._pairs: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self, how: How) -> None:
        """Cut the way from now on."""
        self._how = how
        self._healed.clear()
        if how == "reset":
            self._end_all()

    def heal(self) -> None:
        """Let everything pass again."""
        if self._how == "silent":
            self._end_all()
        self._how = None
        self._healed.set()

    def _end_all(self) -> None:
        for pair in self._pairs:
            pair.cancel()

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def close(self) -> None:
        """End it and every connection."""
        assert self._server is not None
        await stop_listening(self._server)
        self._end_all()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = asyncio.create_task(self._join(reader, writer))
        self._pairs.add(pair)
        pair.add_done_callback(self._pairs.discard)
        await asyncio.wait({pair})

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes both ways until one side ends, or the connection is cut."""
        ends = [writer]
        try:
            if self._how == "reset":
                raise ConnectionResetError
            upstream, to_upstream = await asyncio.open_connection(*self._target)
            ends.append(to_upstream)
            async with asyncio.TaskGroup() as group:
                ways = [
                    group.create_task(self._carry(reader, to_upstream)),
                    group.create_task(self._carry(upstream, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
        except (OSError, ExceptionGroup):
            _reset(*ends)
        except asyncio.CancelledError:
            _reset(*ends)
            raise
        finally:
            for end in ends:
                end.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE_BYTES):
            if self._how == "silent":
                await self._healed.wait()
            elif self._how == "slow":
                await asyncio.sleep(_SLOW_PIECE_SECONDS)
            writer.write(data)
            await writer.drain()


def _reset(*ends: asyncio.StreamWriter) -> None:
    """Have the kernel send RST in place of FIN when these are closed."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


@asynccontextmanager
async def proxied(host: str, port: int) -> AsyncIterator[Proxy]:
    """Run a proxy before a server while the block runs."""
    proxy = Proxy(host, port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
