"""Our nginx configuration lets through what the service allows, as it comes, and speaks JSON where it has to speak."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from tests.nginx import run_nginx

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_MIB = 1 << 20


@asynccontextmanager
async def _behind_nginx(handler: Handler, folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with (
            run_nginx(f"{host}:{port}", folder) as url,
            httpx2.AsyncClient(base_url=url, timeout=60.0) as client,
        ):
            yield client
    finally:
        await runner.cleanup()


def _spooled(folder: Path) -> list[Path]:
    return [
        path for name in ("spooled-uploads", "spooled-answers") for path in (folder / name).rglob("*") if path.is_file()
    ]


async def test_a_large_upload_reaches_the_service_while_it_is_still_being_sent(tmp_path: Path) -> None:
    first_bytes = asyncio.Event()

    async def count(request: web.BaseRequest) -> web.StreamResponse:
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
            first_bytes.set()
        return web.json_response({"bytes": size})

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * _MIB
        await asyncio.wait_for(first_bytes.wait(), 30)
        for _ in range(63):
            yield b"x" * _MIB

    async with _behind_nginx(count, tmp_path) as client:
        answer = await client.post("/v1/files", content=body())
        spooled = _spooled(tmp_path)

    assert answer.json() == {"bytes": 64 * _MIB}
    assert spooled == []


async def test_a_large_download_is_passed_on_while_it_is_still_being_read(tmp_path: Path) -> None:
    client_has_some = asyncio.Event()

    async def send(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"y" * _MIB)
        await asyncio.wait_for(client_has_some.wait(), 30)
        for _ in range(63):
            await answer.write(b"y" * _MIB)
        return answer

    async with _behind_nginx(send, tmp_path) as client:
        size = 0
        async with client.stream("GET", "/v1/files/file-1/content") as answer:
            async for piece in answer.aiter_bytes():
                size += len(piece)
                client_has_some.set()
        spooled = _spooled(tmp_path)

    assert size == 64 * _MIB
    assert spooled == []


async def test_the_services_own_errors_pass_through_untouched(tmp_path: Path) -> None:
    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"mine": True}, status=413, headers={"X-Request-Id": "req_mine"})

    async with _behind_nginx(refuse, tmp_path) as client:
        answer = await client.get("/v1/files")

    assert (answer.status_code, answer.json()) == (413, {"mine": True})
    assert answer.headers.get_list("X-Request-Id") == ["req_mine"]


async def test_a_service_that_is_down_is_a_json_error_that_sdks_retry(tmp_path: Path) -> None:
    async with run_nginx("127.0.0.1:9", tmp_path) as url, httpx2.AsyncClient(base_url=url) as client:
        answer = await client.get("/v1/batches")

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "unavailable"
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Retry-After"] == "5"
    assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["X-Request-Id"])


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /v1/files HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET /refused-by-nginx HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
    ids=["no host", "long header", "long path", "no length", "nginx's own path"],
)
async def test_a_request_that_nginx_refuses_itself_gets_a_json_error(request_bytes: bytes, tmp_path: Path) -> None:
    async with run_nginx("127.0.0.1:9", tmp_path) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(request_bytes)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()

    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Type: application/json" in head
    assert body.startswith(b'{"error":{"message":')


async def test_what_a_client_says_of_its_own_address_does_not_reach_the_service(tmp_path: Path) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"for": request.headers.getall("X-Forwarded-For"), "host": request.headers["Host"]})

    async with _behind_nginx(echo, tmp_path) as client:
        answer = await client.get("/", headers={"X-Forwarded-For": "169.254.169.254", "Host": "batch.example.org"})

    assert answer.json() == {"for": ["127.0.0.1"], "host": "batch.example.org"}
