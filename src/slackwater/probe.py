"""The small port for operators: ``/healthz``, ``/readyz`` and ``/metrics`` of any role, apart from customers' traffic.

``/healthz`` is 200 as long as the event loop answers: a process that does not is to be restarted. ``/readyz`` runs
the checks it was given and says which part is down: such a process is to be left alone, without traffic, until it
recovers. Neither stands for the other. Whatever else arrives, down to bytes that are no HTTP at all, is refused with a
short JSON body of our own and harms nothing.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder

from slackwater.domain.errors import SlackwaterError

_LOG: Final = structlog.get_logger(__name__)
_PATHS: Final = ("/healthz", "/readyz", "/metrics")
_HEADERS: Final = {"Server": "slackwater", "Cache-Control": "no-store"}
"""On every answer: what serves it is nobody's business, and no proxy may keep it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A question to one part of the service. Raising, or being late, means that the part is down."""

    name: str
    ask: Callable[[], Awaitable[object]]
    timeout_seconds: float = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """What the checks said."""

    reasons: dict[str, str | None]
    """By check: None where the part is up, else a sentence without secrets."""

    @property
    def ready(self) -> bool:
        """Whether every part is up."""
        return all(reason is None for reason in self.reasons.values())

    def body(self) -> dict[str, object]:
        """Return what ``/readyz`` shows."""
        checks = {name: "ok" if reason is None else reason for name, reason in self.reasons.items()}
        return {"status": "ready" if self.ready else "not ready", "checks": checks}


async def ask_all(checks: Sequence[Check]) -> Readiness:
    """Run all checks at once; takes as long as the slowest, or its time-out. Never raises for a part that is down."""
    reasons = await asyncio.gather(*(_reason(check) for check in checks))
    return Readiness(reasons=dict(zip((check.name for check in checks), reasons, strict=True)))


async def _reason(check: Check) -> str | None:
    async def ask() -> None:
        async with asyncio.timeout(check.timeout_seconds):
            await check.ask()

    # gather, because an error is the expected answer here; a cancellation from outside still passes through it.
    (outcome,) = await asyncio.gather(ask(), return_exceptions=True)
    match outcome:
        case None:
            return None
        case TimeoutError():
            return f"no answer within {check.timeout_seconds:g} s"
        case SlackwaterError():
            return str(outcome)
        case error:
            # A driver's own text may hold addresses and passwords; its name tells enough, the log has the rest.
            _LOG.warning("check failed", check=check.name, exc_info=error)
            return type(error).__name__


class LagSampler:
    """Measures, while it is entered, how late the running loop wakes a sleeper: the time other code held the loop."""

    def __init__(self, lag: Histogram, *, interval_seconds: float = 0.5) -> None:
        self._lag = lag
        self._interval = interval_seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._sleep(asyncio.get_running_loop())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sleep(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + self._interval
        self._timer = loop.call_at(due, self._wake, loop, due)

    def _wake(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lag.observe(max(0.0, loop.time() - due))
        self._sleep(loop)


class Probe:
    """Serves the three paths while it is entered; ``port`` is the real one, also where 0 was asked for."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        checks: Sequence[Check],
        registry: CollectorRegistry,
        refresh: Check | None = None,
    ) -> None:
        """Prepare; nothing listens yet.

        ``refresh`` is run before each scrape, to bring the queue's view up to date. Where it fails the scrape goes on
        with the older view, whose time stamp is one of the metrics.
        """
        self.host: Final = host
        self.port = port
        self._checks = tuple(checks)
        self._registry = registry
        self._refresh = refresh
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(_Server(self._answer, access_log=None), shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path not in _PATHS:
            return _json(HTTPStatus.NOT_FOUND, {"error": "no such path", "paths": _PATHS})
        if request.method not in {"GET", "HEAD"}:
            refusal = _json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"})
            refusal.headers["Allow"] = "GET, HEAD"
            return refusal
        match request.path:
            case "/healthz":
                return _json(HTTPStatus.OK, {"status": "ok"})
            case "/readyz":
                readiness = await ask_all(self._checks)
                return _json(HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE, readiness.body())
            case _:
                return await self._metrics(request.headers.get("Accept", ""))

    async def _metrics(self, accept: str) -> web.Response:
        if self._refresh is not None:
            stale = await _reason(self._refresh)
            if stale is not None:
                _LOG.warning("metrics show an older view", check=self._refresh.name, reason=stale)
        encode, content_type = choose_encoder(accept)
        return web.Response(body=encode(self._registry), headers={**_HEADERS, "Content-Type": content_type})


class _Server(web.Server):
    """aiohttp's server with our own connections."""

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """One connection: refuses what is no request without the framework's texts, and without a trace per port scan."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  # aiohttp's text, which quotes what a stranger sent
    ) -> web.StreamResponse:
        """Refuse the request, say nothing of it, and close the connection."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _LOG.error("probe failed to answer", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun") from exc
        refusal = _json(HTTPStatus(status), {"error": HTTPStatus(status).phrase.lower()})
        refusal.force_close()
        return refusal


def _json(status: HTTPStatus, body: dict[str, object]) -> web.Response:
    headers = {**_HEADERS, "Content-Type": "application/json"}
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers)
