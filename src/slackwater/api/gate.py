"""The outermost layer of every request: its id, the spelling of its path, its count and duration.

Pure ASGI: a body passes through it in pieces, in both directions, without a task or a copy.
"""

import uuid
from collections.abc import Callable
from typing import Any, Final

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slackwater.api.replies import id_headers
from slackwater.domain.ids import request_id as format_request_id
from slackwater.logs import bound
from slackwater.metrics import Metrics

_LOG: Final = structlog.get_logger(__name__)
_PREFIX: Final = "/v1"
_RESOURCES: Final = frozenset({"batches", "files", "models", "uploads"})
_LOGGED_PATH_CHARACTERS: Final = 200
_FAILED: Final = 500
"""Counted where an error nobody expected passes through here: the framework's outermost layer answers it."""
_CLIENT_LEFT: Final = 499
"""Counted where the client left in the middle; nothing is sent under it."""


def served_path(path: str) -> str:
    """Return the path under which we serve what was asked: no slash at the end, and ``/v1`` where it was left out.

    Answered in place, never by a redirect: a redirect turns POST into GET, and some clients drop their key on it.
    """
    path = path.rstrip("/") or "/"
    # `OPTIONS *` asks for no path at all.
    return _PREFIX + path if path.startswith("/") and path.split("/", 2)[1] in _RESOURCES else path


class RequestGate:
    """Gives each request an id of ours (one sent along is ignored) and puts it on the answer, under both its names."""

    def __init__(self, app: ASGIApp, *, new_uuid: Callable[[], uuid.UUID], metrics: Metrics) -> None:
        self._app = app
        self._new_uuid = new_uuid
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = format_request_id(self._new_uuid())
        named = [(name.encode(), value.encode()) for name, value in id_headers(request_id).items()]
        # Shared, not copied: the framework's outermost layer answers what nobody expected, and must know the id.
        scope.setdefault("state", {}).update(request_id=request_id, asked_path=scope["path"])
        inner: Scope = {**scope, "path": served_path(scope["path"])}
        status = _FAILED

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *named]}
            await send(message)

        started = self._metrics.clock()
        try:
            with bound(request_id=request_id):
                await self._app(inner, receive, send_named)
        except ClientDisconnect:
            status = _CLIENT_LEFT
        finally:
            self._note(inner, status, self._metrics.clock() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request and log it: who asked for what, never with what key or words."""
        method, route, state = scope["method"], _template(scope), scope["state"]
        self._metrics.http.answered(method=method, route=route, status=status, seconds=seconds)
        _LOG.info(
            "request",
            method=method,
            path=state["asked_path"][:_LOGGED_PATH_CHARACTERS],
            status=status,
            seconds=round(seconds, 6),
            request_id=state["request_id"],
            tenant_id=state.get("tenant_id"),
        )


def _template(scope: Scope) -> str | None:
    """Return the template of the route that matched, None where none did."""
    route: Any = scope.get("route")
    return getattr(route, "path", None)
