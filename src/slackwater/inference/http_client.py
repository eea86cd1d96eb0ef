"""A pool of keep-alive connections to one engine: the cheapest way we measured to POST and get an answer.

A request takes the connection that was used last, or opens one: the caller bounds how many are open by how many calls
it makes. All time limits hang on one timer for the earliest of them, since a timer of its own costs a request as much
as a quarter of its whole way.
"""

import asyncio
import math
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from slackwater.domain.errors import EngineTimeout, EngineUnreachable, SetupError
from slackwater.domain.replies import Reply
from slackwater.inference.http_connection import EngineConnection

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence before the first question, between questions, and how many go unanswered: a minute in all."""
_TIMER_GRAIN_SECONDS: Final = 0.001
"""Timers of uvloop fire on whole milliseconds, so possibly this much early."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpLimits:
    """How patient a client is with its server."""

    connect_timeout_seconds: float = 5.0
    keep_alive_seconds: float = 4.0
    """An idle connection older than this is not used again: uvicorn, and so vLLM, closes them after 5 s."""
    max_reply_bytes: int = 64 * 1024 * 1024


class HttpClient:
    """POSTs JSON to one base URL, ``http`` or ``https``, over as many connections as there are calls at once."""

    def __init__(self, base_url: str, *, api_key: str | None, limits: HttpLimits) -> None:
        """Prepare; nothing is opened before the first call. Raises SetupError for a URL or key that cannot be sent."""
        self._origin = _origin(base_url)
        self._headers = _headers(self._origin.host_header, api_key)
        self._limits = limits
        self._heads: dict[str, bytes] = {}
        self._idle: list[EngineConnection] = []
        self._busy: set[EngineConnection] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._closed = False

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        """Send one body and return the whole answer; as :meth:`~slackwater.inference.protocol.Engine.post`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        connection = self._idle_connection(loop) or await self._open(loop, timeout_seconds)
        request = b"%b%d\r\n\r\n%b" % (self._heads.get(path) or self._head(path), len(body), body)
        reply: asyncio.Future[Reply] = loop.create_future()
        connection.deadline = deadline
        self._busy.add(connection)
        if deadline < self._alarm_at:
            self._set_alarm(loop, deadline)
        connection.send(request, reply)
        try:
            return await reply
        except asyncio.CancelledError:
            connection.give_up()
            raise
        finally:
            self._busy.discard(connection)
            if connection.reusable:
                connection.idle_since = loop.time()
                self._idle.append(connection)

    async def close(self) -> None:
        """Drop every connection; calls in flight end with EngineUnreachable, and so do later ones."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for connection in [*self._busy, *self._idle]:
            connection.give_up(_closed_by_us())
        self._idle.clear()
        # Transports report their end in the loop's next round; waiting for it leaves nothing behind.
        await asyncio.sleep(0)

    def _idle_connection(self, loop: asyncio.AbstractEventLoop) -> EngineConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reusable:
                continue
            if connection.idle_since + self._limits.keep_alive_seconds > loop.time():
                return connection
            connection.give_up()
        return None

    async def _open(self, loop: asyncio.AbstractEventLoop, timeout_seconds: float) -> EngineConnection:
        self._refuse_if_closed()
        origin, limits = self._origin, self._limits
        try:
            async with asyncio.timeout(min(limits.connect_timeout_seconds, timeout_seconds)):
                transport, connection = await loop.create_connection(
                    lambda: EngineConnection(limits.max_reply_bytes), origin.host, origin.port, ssl=origin.tls
                )
        except (OSError, TimeoutError) as error:
            # The cause names addresses, which are the operator's business: it is for logs, not for the message.
            raise EngineUnreachable("The engine cannot be reached now.") from error
        try:
            self._refuse_if_closed()
        except EngineUnreachable:
            connection.give_up()
            raise
        _notice_a_dead_host(transport.get_extra_info("socket"))
        return connection

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise _closed_by_us()

    def _head(self, path: str) -> bytes:
        if not path.startswith("/") or _VISIBLE.fullmatch(path) is None:
            raise ValueError(f"{path!r} is no path")
        line = f"POST {self._origin.prefix}{path} HTTP/1.1\r\n"
        head = self._heads[path] = line.encode() + self._headers
        return head

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = loop.call_at(when, self._end_overdue, loop)

    def _end_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time() + _TIMER_GRAIN_SECONDS
        for connection in [busy for busy in self._busy if busy.deadline <= now]:
            connection.give_up(EngineTimeout("The engine gave no whole answer within the time limit of one request."))
            self._busy.discard(connection)
        self._alarm, self._alarm_at = None, math.inf
        if self._busy:
            self._set_alarm(loop, min(busy.deadline for busy in self._busy))


def _notice_a_dead_host(connection: socket.socket) -> None:
    """Have the kernel ask a silent host whether it still lives: an answer may take half an hour, a dead host longer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _closed_by_us() -> EngineUnreachable:
    return EngineUnreachable("The connection to the engine was closed on our side.")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Origin:
    host: str
    port: int
    host_header: str
    prefix: str
    tls: ssl.SSLContext | None


def check_url(base_url: str) -> None:
    """Raise SetupError where no client could be made for this URL; nothing is connected to."""
    _origin(base_url)


def _origin(base_url: str) -> _Origin:
    # What is wrong with it may be a password: the URL itself is not repeated.
    wrong = SetupError("The engine's URL must look like http://host:8000; a password or key does not belong in it.")
    try:
        url = urlsplit(base_url)
        port = url.port
    except ValueError:
        raise wrong from None
    if url.scheme not in _DEFAULT_PORTS or not url.hostname or url.query or url.fragment or "@" in url.netloc:
        raise wrong
    return _Origin(
        host=url.hostname,
        port=port or _DEFAULT_PORTS[url.scheme],
        host_header=url.netloc,
        prefix=url.path.rstrip("/").removesuffix("/v1"),
        tls=ssl.create_default_context() if url.scheme == "https" else None,
    )


def _headers(host: str, api_key: str | None) -> bytes:
    """Everything between the request line and the length's digits."""
    if api_key is not None and _VISIBLE.fullmatch(api_key) is None:
        raise SetupError("The engine's API key holds a character that cannot be sent in a header.")
    key = f"Authorization: Bearer {api_key}\r\n" if api_key is not None else ""
    return f"Host: {host}\r\nContent-Type: application/json\r\n{key}Content-Length: ".encode()
