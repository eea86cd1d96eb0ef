"""The simulated engine as an HTTP server: what a benchmark of the client's side may be measured against.

It answers ``/health``, ``/v1/models``, ``/metrics`` and every endpoint of the engine, keeps connections alive, and has
the faults that need a wire: connections that end early, silence, a dead engine that drops everybody.
``python -m slackwater.inference.simulated_server --port 8000`` runs it alone.
"""

import asyncio
import contextlib
import sys
from argparse import ArgumentParser
from typing import Final

import uvloop

from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_exchange import Exchange, KeyedExchange
from slackwater.inference.simulated_writer import SimulatedModel

_BACKLOG: Final = 2048


class SimulatedServer:
    """A running server; stop it with ``close``."""

    def __init__(self, engine: SimulatedEngine, listener: asyncio.Server, connections: set[Exchange]) -> None:
        """Made by :func:`serve`."""
        self.engine: Final = engine
        self.connections: Final = connections
        """The open ones, idle or not."""
        host, port = listener.sockets[0].getsockname()[:2]
        self.url: Final = f"http://{host}:{port}"
        """Where it listens, as a base URL."""
        self._listener = listener

    async def wait(self) -> None:
        """Serve until cancelled."""
        await self._listener.serve_forever()

    def drop_connections(self) -> None:
        """End every connection at once, idle or not."""
        for connection in [*self.connections]:
            connection.drop()

    async def close(self) -> None:
        """Stop listening, drop every connection, close the engine."""
        await stop_listening(self._listener)
        self.drop_connections()
        await self.engine.close()
        # Transports report their end in the loop's next round.
        await asyncio.sleep(0)


async def stop_listening(listener: asyncio.Server) -> None:
    """Close a listener after what it has accepted was made a connection.

    The loop accepts in one round and makes the connection in the next two; a listener that closes in between leaves
    the socket open for good: https://github.com/python/cpython/issues/109564.
    """
    loop = asyncio.get_running_loop()
    for listening in listener.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(3):
        await asyncio.sleep(0)
    listener.close()


async def serve(
    engine: SimulatedEngine, *, host: str = "127.0.0.1", port: int = 0, api_key: str | None = None
) -> SimulatedServer:
    """Start serving the engine; port 0 takes a free one; with ``api_key``, only those who bring it are served."""
    connections: set[Exchange] = set()

    def connect() -> Exchange:
        return Exchange(engine, connections) if api_key is None else KeyedExchange(engine, connections, api_key)

    loop = asyncio.get_running_loop()
    # A client opens all its connections at once; those beyond the backlog would wait a second for their next SYN.
    listener = await loop.create_server(connect, host, port, backlog=_BACKLOG)
    return SimulatedServer(engine, listener, connections)


async def _run(settings: SimulatedSettings, host: str, port: int) -> None:
    server = await serve(SimulatedEngine(settings), host=host, port=port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await server.wait()


def main() -> None:
    """Run the server alone until it is interrupted; its URL is the first line it prints."""
    parser = ArgumentParser(prog="python -m slackwater.inference.simulated_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--model", action="append", help="a name it answers to; may be given more than once")
    parser.add_argument("--max-model-len", type=int, default=32_768)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--prefill-seconds-per-token", type=float, default=0.0)
    parser.add_argument("--decode-seconds-per-token", type=float, default=0.0)
    given = parser.parse_args()
    settings = SimulatedSettings(
        model=SimulatedModel(names=tuple(given.model or ["simulated"]), max_model_len=given.max_model_len),
        max_num_seqs=given.max_num_seqs,
        latency=Latency(
            prefill_seconds_per_token=given.prefill_seconds_per_token,
            decode_seconds_per_token=given.decode_seconds_per_token,
        ),
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(settings, given.host, given.port))


if __name__ == "__main__":
    main()
