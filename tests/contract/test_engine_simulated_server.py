"""The simulated engine's server: a process of its own, and what it does with bytes that are no requests."""

import asyncio
import contextlib
import gc
import socket
import sys

import pytest

from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.protocol import ServedModel
from slackwater.inference.simulated import SimulatedEngine
from slackwater.inference.simulated_server import serve


async def test_it_runs_alone_and_says_where() -> None:
    command = ["-m", "slackwater.inference.simulated_server", "--model", "a", "--model", "b", "--max-model-len", "512"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
    engine = OpenAIServer(url)

    assert await engine.models() == [ServedModel(name=name, max_model_len=512) for name in ("a", "b")]
    reply = await engine.post("/v1/completions", b'{"model":"b","prompt":"hi"}', timeout_seconds=10)
    assert reply.status == 200

    await engine.close()
    process.terminate()
    await process.wait()


async def test_random_bytes_lose_their_connection_and_nobody_elses() -> None:
    server = await serve(SimulatedEngine())
    engine = OpenAIServer(server.url)
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    writer.write(b"\x16\x03\x01 no request at all\r\n\r\n")

    assert await reader.read() == b""
    assert await engine.ready()
    writer.close()
    await engine.close()
    await server.close()


async def test_a_client_that_wants_no_more_is_let_go() -> None:
    server = await serve(SimulatedEngine())
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    writer.write(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")

    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()
    await server.close()


@pytest.mark.parametrize("rounds", range(6))
async def test_a_connection_that_comes_while_it_closes_is_closed_with_it(rounds: int) -> None:
    server = await serve(SimulatedEngine())
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.settimeout(10)
        for _ in range(rounds):
            await asyncio.sleep(0)

        await server.close()

        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
    assert not server.connections
    gc.collect()  # Reports what was left open.
