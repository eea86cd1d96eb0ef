"""The customer's side of the API in memory, over real HTTP, with faults on demand.

It follows the wire contract as far as the client can see it. A batch's life is a script: each look at it shows its
next state, and the last one stays. Faults are queued per route and used up one by one.
"""

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A fault: this answer instead of the service's, nothing done."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"error":{"message":"not now","type":"server_error","param":null,"code":null}}'


@dataclass(frozen=True, kw_only=True)
class LoseReply:
    """A fault: the request is carried out, and the connection closed without an answer."""


@dataclass(frozen=True, kw_only=True)
class CutContent:
    """A fault: the whole length is announced, and the connection closed after so many bytes."""

    after_bytes: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Refused(Exception):
    """The request is answered with an error object."""

    def __init__(self, status: int, message: str, **fields: str) -> None:
        self.status = status
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}
        self.body: Json = {"error": error}
        super().__init__(message)


class FakeService:
    """State of one fake; every public attribute may be set up by a test before it makes its calls."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.files: dict[str, Json] = {}
        self.contents: dict[str, bytes] = {}
        self.batches: dict[str, Json] = {}
        self.life: list[Json] = [{"status": "completed"}]
        self.faults: dict[str, deque[Answer | LoseReply | CutContent]] = defaultdict(deque)
        self.reply_headers: dict[str, str] = {}
        self.knows_ranges = True
        self.key: str | None = None
        self.on_look: Callable[[int], None] = lambda looks: None
        self._lives: dict[str, deque[Json]] = {}
        self._by_key: dict[str, str] = {}
        self._lock = threading.Lock()
        self._looks = 0

    def add_file(self, file_id: str, content: bytes, *, filename: str = "in.jsonl", purpose: str = "batch") -> None:
        self.contents[file_id] = content
        self.files[file_id] = {
            "id": file_id,
            "object": "file",
            "bytes": len(content),
            "created_at": 1_700_000_000 + len(self.files),
            "expires_at": None,
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
            "status_details": None,
        }

    def add_batch(self, batch_id: str, **changes: object) -> None:
        self.batches[batch_id] = whole_batch(batch_id, **changes)

    def requests(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def answer(self, seen: Seen) -> tuple[int, Json | bytes]:
        with self._lock:
            self.seen.append(seen)
            try:
                if self.key is not None and seen.headers.get("authorization") != f"Bearer {self.key}":
                    raise Refused(401, "Incorrect API key provided.", code="invalid_api_key")
                return 200, self._route(seen)
            except Refused as refused:
                return refused.status, refused.body

    def _route(self, seen: Seen) -> Json | bytes:
        if seen.path == "/readyz":
            return {"status": "ready"}
        _, _, kind, *rest = seen.path.split("/")
        match seen.method, kind, *rest:
            case _, "files", *_:
                return self._route_files(seen, rest)
            case _, "batches", *_:
                return self._route_batches(seen, rest)
            case "GET", "models":
                model = {"id": "tiny", "object": "model", "created": 1, "owned_by": "slackwater"}
                return {"object": "list", "data": [model]}
            case _:
                raise Refused(404, f"Invalid URL ({seen.method} {seen.path})")

    def _route_files(self, seen: Seen, rest: list[str]) -> Json | bytes:
        match seen.method, *rest:
            case ("POST",):
                return self._created(seen, self._create_file)
            case ("GET",):
                return self._page(self.files, seen.query)
            case "GET", file_id:
                return self._found(self.files, file_id, f"No such File object: {file_id}")
            case "GET", file_id, "content":
                self._found(self.files, file_id, f"No such File object: {file_id}")
                return self.contents[file_id]
            case "DELETE", file_id:
                self._found(self.files, file_id, f"No such File object: {file_id}")
                del self.files[file_id]
                return {"id": file_id, "object": "file", "deleted": True}
            case _:
                raise Refused(405, "Method not allowed.")

    def _route_batches(self, seen: Seen, rest: list[str]) -> Json:
        match seen.method, *rest:
            case ("POST",):
                return self._created(seen, self._create_batch)
            case ("GET",):
                return self._page(self.batches, seen.query)
            case "GET", batch_id:
                return self._look(batch_id)
            case "POST", batch_id, "cancel":
                return self._cancel(batch_id)
            case "POST", batch_id, "pause":
                return self._pause(batch_id, paused_at=1_700_000_000)
            case "POST", batch_id, "resume":
                return self._pause(batch_id, paused_at=None)
            case _:
                raise Refused(405, "Method not allowed.")

    def _found(self, things: dict[str, Json], identifier: str, message: str) -> Json:
        if identifier not in things:
            raise Refused(404, message)
        return things[identifier]

    def _created(self, seen: Seen, create: Callable[[Seen], Json]) -> Json:
        key = seen.headers.get("idempotency-key")
        if key is not None and key in self._by_key:
            identifier = self._by_key[key]
            return self.files[identifier] if identifier in self.files else self.batches[identifier]
        created = create(seen)
        if key is not None:
            self._by_key[key] = created["id"]
        return created

    def _create_file(self, seen: Seen) -> Json:
        parts = multipart_parts(seen)
        file_id = f"file-{len(self.files) + 1:032x}"
        filename, content = parts["file"]
        self.add_file(file_id, content, filename=filename, purpose=parts["purpose"][1].decode())
        if "expires_after[seconds]" in parts:
            created = self.files[file_id]["created_at"]
            self.files[file_id]["expires_at"] = created + int(parts["expires_after[seconds]"][1])
        return self.files[file_id]

    def _create_batch(self, seen: Seen) -> Json:
        batch_id = f"batch_{len(self.batches) + 1:032x}"
        asked = json.loads(seen.body)
        if asked["endpoint"] == "/v1/nonsense":
            raise Refused(400, "Invalid value: '/v1/nonsense'.", param="endpoint", code="invalid_value")
        asked.pop("invalid_lines", None)
        self.add_batch(batch_id, status="validating", **asked)
        self._lives[batch_id] = deque(self.life)
        return self.batches[batch_id]

    def _look(self, batch_id: str) -> Json:
        self._found(self.batches, batch_id, f"No batch found with id '{batch_id}'.")
        self._looks += 1
        self.on_look(self._looks)
        life = self._lives.get(batch_id)
        if life:
            self.batches[batch_id] = {**self.batches[batch_id], **life.popleft()}
        return self.batches[batch_id]

    def _cancel(self, batch_id: str) -> Json:
        batch = self._found(self.batches, batch_id, f"No batch found with id '{batch_id}'.")
        if batch["status"] in {"completed", "failed", "expired", "cancelled"}:
            raise Refused(409, f"Cannot cancel a batch with status '{batch['status']}'.")
        batch["status"] = "cancelling"
        return batch

    def _pause(self, batch_id: str, *, paused_at: int | None) -> Json:
        batch = self._found(self.batches, batch_id, f"No batch found with id '{batch_id}'.")
        batch["paused_at"] = paused_at
        return batch

    def _page(self, things: dict[str, Json], query: dict[str, str]) -> Json:
        items = list(things.values())
        if query.get("order", "desc") == "desc":
            items.reverse()
        if "purpose" in query:
            items = [item for item in items if item["purpose"] == query["purpose"]]
        if "after" in query:
            items = items[[item["id"] for item in items].index(query["after"]) + 1 :]
        data = items[: int(query.get("limit", "20"))]
        return {
            "object": "list",
            "data": data,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
            "has_more": len(data) < len(items),
        }


def whole_batch(batch_id: str, **changes: object) -> Json:
    """A batch object with every key of the contract."""
    moments = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    return {
        "id": batch_id,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "model": None,
        "errors": None,
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "in_progress",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": 1_700_000_000,
        "expires_at": 1_700_086_400,
        **{f"{moment}_at": None for moment in moments},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": None,
        "metadata": None,
        **changes,
    }


def multipart_parts(seen: Seen) -> dict[str, tuple[str, bytes]]:
    """Read a multipart body strictly enough to notice a wrong one: name to (filename, content)."""
    boundary = seen.headers["content-type"].partition("boundary=")[2].encode()
    assert seen.body.endswith(b"\r\n--" + boundary + b"--\r\n")
    parts: dict[str, tuple[str, bytes]] = {}
    for part in (b"\r\n" + seen.body).split(b"\r\n--" + boundary)[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        line = head.decode().split("\r\n")[0]
        name = line.partition(' name="')[2].partition('"')[0]
        parts[name] = (line.partition('filename="')[2].partition('"')[0], content)
    return parts


@contextmanager
def serving(service: FakeService) -> Iterator[str]:
    """Serve the fake on loopback and give its base URL."""

    class Handler(_Handler):
        fake = service

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeService

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Say nothing."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        seen = Seen(
            method=self.command,
            path=unquote(url.path),
            query={name: values[0] for name, values in parse_qs(url.query).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self._body(),
        )
        queued = self.fake.faults[f"{seen.method} {seen.path}"]
        fault = queued.popleft() if queued else None
        if isinstance(fault, Answer):
            self.fake.seen.append(seen)
            self._send(fault.status, fault.body, {"Content-Type": "application/json", **fault.headers})
            return
        status, body = self.fake.answer(seen)
        if isinstance(fault, LoseReply):
            self.close_connection = True
        elif isinstance(body, bytes):
            self._send_content(body, seen, fault)
        else:
            headers = {"Content-Type": "application/json", "x-request-id": "req_1", **self.fake.reply_headers}
            if status == HTTPStatus.CONFLICT:
                headers["x-should-retry"] = "false"
            self._send(status, json.dumps(body).encode(), headers)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 -- the base class's names

    def _send_content(self, content: bytes, seen: Seen, fault: CutContent | None) -> None:
        headers = {"Content-Type": "application/octet-stream", "ETag": f'"{hash(content)}"'}
        start, status = 0, 200
        if self.fake.knows_ranges and "range" in seen.headers:
            start, status = int(seen.headers["range"].removeprefix("bytes=").removesuffix("-")), 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(status, content[start:], headers, cut_after=fault.after_bytes if fault else None)

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, cut_after: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # A client may leave in the middle.
        with suppress(ConnectionError):
            self.wfile.write(body[:cut_after])
        if cut_after is not None:
            self.close_connection = True

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body
