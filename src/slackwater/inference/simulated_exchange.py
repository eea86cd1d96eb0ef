"""One HTTP connection to the simulated engine: requests in, replies out, one at a time, as light as asyncio allows."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, cast

import httptools

from slackwater.domain.errors import EngineReplyTooLarge, EngineUnreachable
from slackwater.inference.protocol import Reply
from slackwater.inference.simulated import OWNER, SimulatedEngine
from slackwater.inference.simulated_faults import BreakOff, Canned, Fault, HangUp, Trickle
from slackwater.inference.simulated_writer import Answer

_REASONS: Final = {status.value: status.phrase for status in HTTPStatus}
_JSON: Final = {"content-type": "application/json"}
_FLOOD_BYTES: Final = 1 << 16
_TRICKLE_SECONDS: Final = 0.02
_HALF: Final = b'{"id": "x", "object": "chat.comp'


class Exchange(asyncio.Protocol):
    """A connection; ``connections`` holds it, and all others of the engine, for as long as it lives."""

    def __init__(self, engine: SimulatedEngine, connections: "set[Exchange]") -> None:
        self._engine = engine
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._pouring: asyncio.Task[None] | None = None

    def drop(self) -> None:
        """End the connection without another byte."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; a dead engine's port talks to nobody."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        if not self._engine.is_up:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio calls it by position
        """End; the request in flight frees its slot."""
        self._connections.discard(self)
        for task in (self._task, self._pouring):
            if task is not None:
                task.cancel()

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.drop()

    def on_url(self, url: bytes) -> None:
        """Keep the request's target."""
        self._url = url

    def on_body(self, data: bytes) -> None:
        """Gather the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Answer at once where that can be, else leave a task to it."""
        path = self._url.decode("ascii", "replace")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        try:
            work = self._without_inference(path) or self._engine.take(path, body)
        except EngineUnreachable:
            self.drop()
            return
        if isinstance(work, Reply):
            self._write(work.status, work.body, _JSON)
        else:
            self._task = asyncio.get_running_loop().create_task(self._finish(work))

    def _without_inference(self, path: str) -> Reply | None:
        """What is asked now and then: health, models, gauges."""
        page = _PAGES.get(path)
        return None if page is None else Reply(HTTPStatus.OK, page(self._engine))

    async def _finish(self, work: Answer | Fault) -> None:
        try:
            if isinstance(work, Trickle):
                self._pouring = asyncio.create_task(self._pour(1, pause_seconds=_TRICKLE_SECONDS))
            reply = await self._engine.finish(work)
        except EngineReplyTooLarge:
            await self._pour(_FLOOD_BYTES, pause_seconds=0.0)
        except EngineUnreachable:
            self._break(work)
        else:
            self._write(reply.status, reply.body, work.headers if isinstance(work, Canned) else _JSON)

    def _break(self, work: Answer | Fault) -> None:
        if isinstance(work, BreakOff):
            self._transport.write(_head(HTTPStatus.OK, 2 * len(_HALF), _JSON) + _HALF)
            self._transport.close()
        elif isinstance(work, HangUp):
            self.drop()
        else:  # The engine died: its connections die with it, idle ones too.
            for connection in [*self._connections]:
                connection.drop()

    async def _pour(self, size: int, *, pause_seconds: float) -> None:
        """Write an answer without an end, in pieces, no faster than it is read; ends with the connection."""
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while not self._transport.is_closing():
            if self._transport.get_write_buffer_size() < _FLOOD_BYTES:
                self._transport.write(b" " * size)
            await asyncio.sleep(pause_seconds)

    def _write(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._transport.write(_head(status, len(body), headers) + body)
        if not self._parser.should_keep_alive():
            self._transport.close()


class KeyedExchange(Exchange):
    """A connection to an engine that wants a key; apart, since listening to headers costs every request."""

    def __init__(self, engine: SimulatedEngine, connections: set[Exchange], api_key: str) -> None:
        super().__init__(engine, connections)
        self._wanted = b"Bearer " + api_key.encode()
        self._brought: bytes | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the key."""
        if name.lower() == b"authorization":
            self._brought = value

    def _without_inference(self, path: str) -> Reply | None:
        brought, self._brought = self._brought, None
        if path.startswith("/v1/") and brought != self._wanted:
            return Reply(HTTPStatus.UNAUTHORIZED, b'{"error":"Unauthorized"}')
        return super()._without_inference(path)


def _head(status: int, length: int, headers: Mapping[str, str]) -> bytes:
    if status == HTTPStatus.OK and headers is _JSON:
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**_JSON, **headers}.items())
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n{lines}content-length: {length}\r\n\r\n".encode()


def _models(engine: SimulatedEngine) -> bytes:
    model = engine.settings.model
    entries = [
        {"id": name, "object": "model", "owned_by": OWNER, "max_model_len": model.max_model_len} for name in model.names
    ]
    return json.dumps({"object": "list", "data": entries}).encode()


def _metrics(engine: SimulatedEngine) -> bytes:
    slots = engine.slots
    gauges = {
        "num_requests_running": slots.running,
        "num_requests_waiting": slots.waiting,
        "kv_cache_usage_perc": slots.running / slots.count,
        "num_preemptions_total": 0,
        "generation_tokens_total": engine.answered,
    }
    return "".join(f'vllm:{name}{{model_name="simulated"}} {value}\n' for name, value in gauges.items()).encode()


_PAGES: Final = {"/health": lambda _: b"", "/v1/models": _models, "/metrics": _metrics}
