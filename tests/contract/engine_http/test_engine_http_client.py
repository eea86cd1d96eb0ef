"""The HTTP client against servers that do everything a server may do, and some that it may not."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from slackwater.domain.errors import EngineReplyTooLarge, EngineTimeout, EngineUnreachable, SetupError
from slackwater.domain.replies import Reply
from slackwater.inference.http_client import HttpClient, HttpLimits
from slackwater.inference.http_connection import retry_after_seconds
from slackwater.inference.simulated_server import stop_listening

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CUT = object()
"""An entry of a script: end the connection."""


@dataclass
class Script:
    """A server that writes what it was told to, one list of pieces per request, and keeps what it was sent."""

    answers: list[list[bytes | object]]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                for piece in self.answers.pop(0):
                    if not isinstance(piece, bytes):
                        return
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


Start = Callable[..., Awaitable[Script]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers: list[asyncio.Server] = []

    async def begin(*answers: list[bytes | object]) -> Script:
        script = Script(list(answers))
        server = await asyncio.start_server(script.talk, "127.0.0.1", 0)
        servers.append(server)
        script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return script

    yield begin
    for server in servers:
        await stop_listening(server)


def client_of(script: Script, *, api_key: str | None = None, **limits: float) -> HttpClient:
    return HttpClient(script.url, api_key=api_key, limits=HttpLimits(**limits))  # type: ignore[arg-type]


async def post(client: HttpClient, body: bytes = b"{}", *, timeout_seconds: float = 10.0) -> Reply:
    return await client.post("/v1/completions", body, timeout_seconds=timeout_seconds)


async def test_a_request_is_sent_whole_with_the_key_and_nothing_superfluous(start: Start) -> None:
    script = await start([OK])
    client = HttpClient(script.url + "/engine/v1", api_key="sk-1", limits=HttpLimits())

    await post(client, b'{"a":1}')

    host = script.url.removeprefix("http://").encode()
    assert script.requests == [
        b"POST /engine/v1/completions HTTP/1.1\r\nHost: " + host + b"\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer sk-1\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'
    ]
    await client.close()


async def test_a_connection_is_used_again(start: Start) -> None:
    script = await start([OK], [OK], [OK])
    client = client_of(script)

    replies = [await post(client) for _ in range(3)]

    assert replies == [Reply(200, b"ok")] * 3
    assert script.connections == 1
    await client.close()


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nh", b"ello"], b"hello"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", b"2\r\nlo\r\n0\r\n\r\n"], b"hello"),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], b"hello"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], b"hello"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], b""),
    ],
)
async def test_answers_in_any_framing_are_whole(start: Start, pieces: list[bytes | object], body: bytes) -> None:
    script = await start(pieces, [OK])
    client = client_of(script)

    assert await post(client) == Reply(200, body)
    assert await post(client) == Reply(200, b"ok")
    assert script.connections == 1
    await client.close()


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\nuntil the ", b"end", CUT], b"until the end"),
        ([b"HTTP/1.0 200 OK\r\n\r\n", CUT], b""),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"], b"ok"),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok and noise"], b"ok"),
        ([OK + OK], b"ok"),
        ([OK + b"HTTP/1.1 2"], b"ok"),
        ([OK + b"noise"], b"ok"),
    ],
)
async def test_a_connection_that_cannot_be_trusted_further_is_not_used_again(
    start: Start, pieces: list[bytes | object], body: bytes
) -> None:
    script = await start(pieces, [OK])
    client = client_of(script)

    assert await post(client) == Reply(200, body)
    assert await post(client) == Reply(200, b"ok")
    assert script.connections == 2
    await client.close()


@pytest.mark.parametrize(
    "pieces",
    [
        [CUT],
        [b"HTTP/1.1 200 OK\r\n", CUT],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", CUT],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", CUT],
        [b"SSH-2.0-OpenSSH_9.2\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"],
    ],
)
async def test_an_answer_that_is_not_whole_is_an_unreachable_engine(start: Start, pieces: list[bytes | object]) -> None:
    script = await start(pieces, [OK])
    client = client_of(script)

    with pytest.raises(EngineUnreachable):
        await post(client)
    assert await post(client) == Reply(200, b"ok")
    await client.close()


async def test_a_connection_closed_while_idle_is_replaced(start: Start) -> None:
    script = await start([OK, CUT], [OK])
    client = client_of(script)
    await post(client)
    while client._idle[0].reusable:  # The server's goodbye is on its way.
        await asyncio.sleep(0)

    assert await post(client) == Reply(200, b"ok")
    assert script.connections == 2
    await client.close()


async def test_a_connection_idle_for_too_long_is_not_used_again(start: Start) -> None:
    script = await start([OK], [OK])
    client = client_of(script, keep_alive_seconds=0.0)

    await post(client)
    await post(client)

    assert script.connections == 2
    await client.close()


async def test_a_server_that_speaks_out_of_turn_loses_its_connection(start: Start) -> None:
    script = await start([OK], [OK])
    client = client_of(script)
    await post(client)

    client._idle[0].data_received(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    assert await post(client) == Reply(200, b"ok")
    assert script.connections == 2
    await client.close()


async def test_a_redirect_is_an_answer_and_is_not_followed(start: Start) -> None:
    script = await start(
        [b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"]
    )
    client = client_of(script)

    assert await post(client) == Reply(307, b"")
    await client.close()


async def test_retry_after_reaches_the_caller(start: Start) -> None:
    seconds = b"HTTP/1.1 429 Too Many Requests\r\nRETRY-AFTER: 2\r\nContent-Length: 0\r\n\r\n"
    date = (
        b"HTTP/1.1 429 Too Many Requests\r\nDate: Wed, 21 Oct 2099 07:27:30 GMT\r\n"
        b"Retry-After: Wed, 21 Oct 2099 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n"
    )
    script = await start([seconds], [date], [OK])
    client = client_of(script)

    assert await post(client) == Reply(429, b"", 2.0)
    assert await post(client) == Reply(429, b"", 30.0)
    assert await post(client) == Reply(200, b"ok")
    await client.close()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_an_answer_over_the_limit_is_refused_with_the_limit_named(start: Start, head: bytes) -> None:
    script = await start([head + b"x" * 2000], [OK])
    client = client_of(script, max_reply_bytes=1000)

    with pytest.raises(EngineReplyTooLarge, match="1,000 bytes"):
        await post(client)
    assert await post(client) == Reply(200, b"ok")
    await client.close()


async def test_each_request_has_its_own_time_limit(start: Start) -> None:
    script = await start([], [], [OK])
    client = client_of(script)

    late = asyncio.create_task(post(client, timeout_seconds=0.2))
    later = asyncio.create_task(post(client, timeout_seconds=0.1))

    with pytest.raises(EngineTimeout):
        await later
    assert not late.done()
    with pytest.raises(EngineTimeout):
        await late
    assert await post(client) == Reply(200, b"ok")
    assert script.connections == 3
    await client.close()


async def test_a_cancelled_request_ends_its_connection(start: Start) -> None:
    script = await start([])
    client = client_of(script)
    call = asyncio.create_task(post(client))
    while not script.requests:
        await asyncio.sleep(0)

    call.cancel()

    await asyncio.wait_for(script.ended.wait(), 10)
    assert call.cancelled()
    await client.close()


async def test_nobody_listening_is_an_unreachable_engine() -> None:
    client = HttpClient("http://127.0.0.1:1", api_key=None, limits=HttpLimits())

    with pytest.raises(EngineUnreachable) as caught:
        await post(client)

    assert "127.0.0.1" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    await client.close()


async def test_closing_ends_what_is_in_flight(start: Start) -> None:
    script = await start([])
    client = client_of(script)
    call = asyncio.create_task(post(client))
    while not script.requests:
        await asyncio.sleep(0)

    await client.close()

    with pytest.raises(EngineUnreachable):
        await call
    with pytest.raises(EngineUnreachable):
        await post(client)


async def test_closing_while_a_connection_is_being_made_ends_that_too(start: Start) -> None:
    script = await start([OK])
    client = client_of(script)
    call = asyncio.create_task(post(client))
    await asyncio.sleep(0)

    await client.close()

    with pytest.raises(EngineUnreachable):
        await call
    assert script.requests == []


async def test_a_connection_that_ends_before_its_first_request_is_an_unreachable_engine(start: Start) -> None:
    script = await start([OK])
    client = client_of(script)
    connection = await client._open(asyncio.get_running_loop(), 5.0)
    connection.give_up()
    reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    connection.send(b"GET / HTTP/1.1\r\n\r\n", reply)

    with pytest.raises(EngineUnreachable):
        await reply
    await client.close()


async def test_many_requests_at_once_each_get_their_own_answer(start: Start) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.split(b"Content-Length: ")[1]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", api_key=None, limits=HttpLimits())
    bodies = [b"%d" % number * (number + 1) * 50 for number in range(100)]

    for _ in range(3):
        replies = await asyncio.gather(*(post(client, body) for body in bodies))
        assert [reply.body for reply in replies] == bodies

    await client.close()
    await stop_listening(server)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host/?a=1", "http://user:password@host"]
)
def test_a_url_that_is_no_engines_is_refused(url: str) -> None:
    with pytest.raises(SetupError, match="URL"):
        HttpClient(url, api_key=None, limits=HttpLimits())


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX-Evil: 1", "clé"])
def test_a_key_that_is_no_header_is_refused(key: str) -> None:
    with pytest.raises(SetupError, match="key"):
        HttpClient("http://host", api_key=key, limits=HttpLimits())


@pytest.mark.parametrize("path", ["v1/x", "/v1/x y", "/v1\r\nX-Evil: 1"])
async def test_a_path_that_is_no_path_is_refused(start: Start, path: str) -> None:
    client = client_of(await start())

    with pytest.raises(ValueError, match="no path"):
        await client.post(path, b"{}", timeout_seconds=1)
    await client.close()


def test_https_is_checked_against_the_systems_authorities() -> None:
    client = HttpClient("https://engine.example", api_key=None, limits=HttpLimits())

    assert client._origin.port == 443
    assert client._origin.tls is not None
    assert client._origin.tls.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        (b"2", None, 2.0),
        (b" 0.5 ", None, 0.5),
        (b"Wed, 21 Oct 2099 07:28:00 GMT", None, None),
        (b"Wed, 21 Oct 2099 07:28:00 GMT", b"Wed, 21 Oct 2099 07:27:30 GMT", 30.0),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", b"Wed, 21 Oct 2099 07:27:30 GMT", 0.0),
        (b"Wed, 21 Oct 2099 07:28:00", b"Wed, 21 Oct 2099 07:27:30 GMT", None),
        (b"soon", b"Wed, 21 Oct 2099 07:27:30 GMT", None),
        (b"-1", None, None),
        (b"", None, None),
        (b"inf", None, None),
        (b"1" * 400, None, None),
        ("٣".encode(), None, None),
    ],
)
def test_retry_after_is_read_or_ignored(value: bytes, date: bytes | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, date) == seconds
