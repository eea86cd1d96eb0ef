"""One keep-alive connection to an engine: bytes out, one whole answer in, by httptools' parser.

It keeps to what a POST of a JSON body to an inference server needs: one request at a time, the answer held whole, no
redirects, no decompression, no pipelining. It stands here because it was measured against aiohttp
(``docs/decisions/0004-engine-http-client.md``): a sixth of the CPU for each request.
"""

import asyncio
import re
from email.utils import parsedate_to_datetime
from typing import Final, cast

import httptools

from slackwater.domain.errors import EngineBroke, EngineReplyTooLarge, EngineUnreachable
from slackwater.domain.replies import Reply

_HEADERS_OF_INTEREST: Final = frozenset({4, 11, 14, 17})
"""Lengths of ``date``, ``retry-after``, ``content-length`` and ``transfer-encoding``: most headers end here."""
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]*)?")
_INTERIM: Final = range(100, 200)


class EngineConnection(asyncio.Protocol):
    """A connection that is idle, or waits for the answer to the one request it carries."""

    __slots__ = (
        "_answered",
        "_body",
        "_date",
        "_delimited",
        "_headers_done",
        "_max_reply_bytes",
        "_parser",
        "_reply",
        "_retry_after",
        "_size",
        "_status",
        "_transport",
        "deadline",
        "idle_since",
        "reusable",
    )

    def __init__(self, max_reply_bytes: int) -> None:
        self._max_reply_bytes = max_reply_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._reply: asyncio.Future[Reply] | None = None
        self._retry_after: bytes | None = None
        self._date: bytes | None = None
        self._body: list[bytes] = []
        self.reusable = True
        """Whether another request may be sent once the current one is answered."""
        self.deadline = 0.0
        """When the owner gives the current request up, in its loop's time."""
        self.idle_since = 0.0
        self._forget()

    def send(self, request: bytes, reply: asyncio.Future[Reply]) -> None:
        """Write a whole request; ``reply`` gets the answer or an EngineError. The connection must be idle."""
        self._reply = reply
        if self.reusable:
            self._transport.write(request)
        else:  # Closed by the server before it was used at all.
            self.give_up(EngineUnreachable("The engine closed the connection before it was used."))

    def give_up(self, error: Exception | None = None) -> None:
        """Drop the connection at once, so that the engine stops working on the request; its waiter gets ``error``."""
        self.reusable = False
        self._transport.abort()
        waiting, self._reply = self._reply, None
        if error is not None and waiting is not None and not waiting.done():
            waiting.set_exception(error)

    # From the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a server that speaks out of turn, or no HTTP, loses the connection."""
        if self._reply is None:
            self.give_up()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # Bytes after a whole answer are noise, and the connection is out of step with its requests from here on.
            self.reusable = False
            cause = error.__context__
            if not self._answered:
                self.give_up(cause if isinstance(cause, EngineReplyTooLarge) else _not_http())
        if self._answered:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; an answer without a length is whole exactly when the server says goodbye politely."""
        if self._headers_done and not self._delimited and exc is None and self._reply is not None:
            self._status = self._parser.get_status_code()
            self.reusable = False
            self._finish()
        else:
            self.give_up(_broken())

    # From the parser.

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self._answered:
            raise _OutOfStepError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the few headers that matter."""
        if len(name) not in _HEADERS_OF_INTEREST:
            return
        match name.lower():
            case b"content-length":
                self._delimited = True
                self._check_size(int(value))
            case b"transfer-encoding":
                self._delimited = True
            case b"retry-after":
                self._retry_after = value
            case b"date":
                self._date = value

    def on_headers_complete(self) -> None:
        """From here on a closed connection may be the end of a body."""
        self._headers_done = True

    def on_body(self, data: bytes) -> None:
        """Gather the body, never more than the limit."""
        self._size += len(data)
        self._check_size(self._size)
        self._body.append(data)

    def on_message_complete(self) -> None:
        """An answer is whole; 1xx only announce it."""
        self._status = self._parser.get_status_code()
        if self._status in _INTERIM:
            self._forget()
        else:
            self._answered = True
            self.reusable = self._parser.should_keep_alive()

    def _finish(self) -> None:
        reply = Reply(
            self._status,
            self._body[0] if len(self._body) == 1 else b"".join(self._body),
            retry_after_seconds(self._retry_after, self._date) if self._retry_after is not None else None,
        )
        if not self.reusable:
            self._transport.abort()
        waiting, self._reply = self._reply, None
        self._forget()
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)

    def _check_size(self, size: int) -> None:
        if size > self._max_reply_bytes:
            raise EngineReplyTooLarge(f"The engine's answer is larger than {self._max_reply_bytes:,} bytes.")

    def _forget(self) -> None:
        self._answered = self._delimited = self._headers_done = False
        self._retry_after = self._date = None
        self._body = []
        self._size = 0
        self._status = 0


def retry_after_seconds(value: bytes, date: bytes | None = None) -> float | None:
    """Read a Retry-After header: seconds, or an HTTP date, measured from the reply's own Date; None if unreadable."""
    text = value.decode("latin-1").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    if date is None:
        return None
    try:
        pause = parsedate_to_datetime(text) - parsedate_to_datetime(date.decode("latin-1"))
    except (ValueError, TypeError):
        return None
    return max(0.0, pause.total_seconds())


class _OutOfStepError(Exception):
    """Stops the parser; never leaves this module."""


def _broken() -> EngineBroke:
    return EngineBroke("The engine closed the connection before its answer was complete.")


def _not_http() -> EngineUnreachable:
    return EngineUnreachable("What answers at the engine's address does not speak HTTP.")
