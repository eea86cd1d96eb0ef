import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import httpx2
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from slackwater.domain.errors import DatabaseUnavailable
from slackwater.probe import Check, LagSampler, Probe, ask_all


async def _up() -> None:
    """Answer at once."""


async def _hangs() -> None:
    await asyncio.Event().wait()


def _raises(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def ask() -> None:
        raise error

    return ask


@asynccontextmanager
async def _probed(
    *checks: Check, registry: CollectorRegistry | None = None, refresh: Check | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, Probe]]:
    async with (
        Probe("127.0.0.1", 0, checks=checks, registry=registry or CollectorRegistry(), refresh=refresh) as probe,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{probe.port}") as client,
    ):
        yield client, probe


async def test_a_live_process_is_healthy_while_everything_else_is_down() -> None:
    async with _probed(Check(name="database", ask=_raises(OSError("no")))) as (client, _):
        answer = await client.get("/healthz")

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_a_process_is_ready_when_every_part_answers() -> None:
    async with _probed(Check(name="database", ask=_up), Check(name="store", ask=_up)) as (client, _):
        answer = await client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "checks": {"database": "ok", "store": "ok"}}


async def test_readiness_says_which_part_is_down_and_why() -> None:
    checks = (
        Check(name="database", ask=_raises(DatabaseUnavailable("PostgreSQL did not answer."))),
        Check(name="store", ask=_up),
        Check(name="engine", ask=_hangs, timeout_seconds=0.01),
    )

    async with _probed(*checks) as (client, _):
        answer = await client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json() == {
        "status": "not ready",
        "checks": {"database": "PostgreSQL did not answer.", "store": "ok", "engine": "no answer within 0.01 s"},
    }


async def test_a_drivers_own_text_is_not_shown() -> None:
    check = Check(name="database", ask=_raises(OSError("postgresql://slackwater:marker-password@db")))

    with capture_logs() as logged:
        async with _probed(check) as (client, _):
            answer = await client.get("/readyz")

    assert answer.json()["checks"] == {"database": "OSError"}
    assert [(line["event"], line["check"]) for line in logged] == [("check failed", "database")]


async def test_checks_run_side_by_side() -> None:
    meet = asyncio.Barrier(3)

    readiness = await ask_all([Check(name=str(n), ask=meet.wait) for n in range(3)])

    assert readiness.ready


async def test_a_cancelled_question_is_not_taken_for_an_answer() -> None:
    asking = asyncio.create_task(ask_all([Check(name="store", ask=_hangs)]))
    await asyncio.sleep(0)

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_process_without_checks_is_ready() -> None:
    async with _probed() as (client, _):
        assert (await client.get("/readyz")).status_code == 200


async def test_metrics_are_in_the_text_format_unless_asked_otherwise() -> None:
    registry = CollectorRegistry()
    Gauge("lines", "Lines.", registry=registry).set(3)

    async with _probed(registry=registry) as (client, _):
        plain = await client.get("/metrics")
        openmetrics = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})

    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert [family.name for family in text_string_to_metric_families(plain.text)] == ["lines"]
    assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


async def test_numbers_are_brought_up_to_date_before_a_scrape() -> None:
    registry = CollectorRegistry()
    scrapes = Counter("scrapes_total", "Scrapes.", registry=registry)

    async def refresh() -> None:
        scrapes.inc()

    async with _probed(registry=registry, refresh=Check(name="queue", ask=refresh)) as (client, _):
        await client.get("/metrics")
        answer = await client.get("/metrics")

    assert "scrapes_total 2.0" in answer.text


@pytest.mark.parametrize("ask", [_hangs, _raises(DatabaseUnavailable("gone"))])
async def test_numbers_that_cannot_be_brought_up_to_date_stop_no_scrape(ask: Callable[[], Awaitable[None]]) -> None:
    refresh = Check(name="queue", ask=ask, timeout_seconds=0.01)

    with capture_logs() as logged:
        async with _probed(refresh=refresh) as (client, _):
            answer = await client.get("/metrics")

    assert answer.status_code == 200
    assert [line["event"] for line in logged] == ["metrics show an older view"]


@pytest.mark.parametrize("path", ["/", "/metrics/", "/v1/batches", "/%2e%2e/etc/passwd"])
async def test_any_other_path_is_not_found_in_our_own_words(path: str) -> None:
    async with _probed() as (client, _):
        answer = await client.get(path)

    assert answer.status_code == 404
    assert answer.json() == {"error": "no such path", "paths": ["/healthz", "/readyz", "/metrics"]}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_only_reading_is_allowed(method: str) -> None:
    async with _probed() as (client, _):
        answer = await client.request(method, "/healthz", content=b"x" * 100_000)

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert answer.json() == {"error": "only GET and HEAD"}


async def test_head_answers_without_a_body() -> None:
    async with _probed() as (client, _):
        answer = await client.head("/metrics")

    assert (answer.status_code, answer.content) == (200, b"")


class _Broken(Counter):
    def collect(self) -> list[object]:  # type: ignore[override]
        raise RuntimeError("marker: something inside")


async def test_a_fault_of_ours_is_logged_and_not_shown() -> None:
    registry = CollectorRegistry()
    registry.register(_Broken("broken_total", "Broken.", registry=None))

    with capture_logs() as logged:
        async with _probed(registry=registry) as (client, _):
            answer = await client.get("/metrics", headers={"Accept": "text/html"})
            alive = await client.get("/healthz")

    assert (answer.status_code, answer.json()) == (500, {"error": "internal server error"})
    assert alive.status_code == 200
    assert [line["event"] for line in logged] == ["probe failed to answer"]


_NOISE: Sequence[bytes] = [
    b"\x00\x01\x02\x03\xff\xfe" * 50,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 4,
    b"GET",
    b"\r\n\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n",
    b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("noise", _NOISE, ids=range(len(_NOISE)))
async def test_bytes_that_are_no_request_harm_nothing_and_are_not_quoted(noise: bytes) -> None:
    with capture_logs() as logged:
        async with _probed() as (client, probe):
            reader, writer = await asyncio.open_connection("127.0.0.1", probe.port)
            writer.write(noise)
            writer.write_eof()
            answer = await reader.read(65_536)
            writer.close()
            alive = await client.get("/healthz")

    assert alive.status_code == 200
    assert logged == []
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body in {b"", b'{"error": "bad request"}', b'{"status": "ok"}'} or b"no such path" in body
    assert b"aiohttp" not in answer
    assert b"script" not in answer
    assert head == b"" or head.startswith(b"HTTP/")


async def test_a_connection_that_says_nothing_does_not_hold_up_the_end() -> None:
    async with _probed() as (_, probe):
        _, writer = await asyncio.open_connection("127.0.0.1", probe.port)
    writer.close()


async def test_a_loop_held_by_other_code_shows_as_lag() -> None:
    registry = CollectorRegistry()
    lag = Histogram("lag_seconds", "Lag.", registry=registry)
    sampled = asyncio.Event()
    observe = lag.observe

    def observe_and_tell(amount: float, exemplar: dict[str, str] | None = None) -> None:
        observe(amount, exemplar)
        sampled.set()

    lag.observe = observe_and_tell  # type: ignore[method-assign]
    with LagSampler(lag, interval_seconds=0.001):
        held = time.monotonic() + 0.05
        while time.monotonic() < held:
            pass
        await sampled.wait()

    assert 0.03 < (registry.get_sample_value("lag_seconds_sum") or 0) < 5


async def test_sampling_ends_with_its_block() -> None:
    registry = CollectorRegistry()

    with LagSampler(Histogram("lag_seconds", "Lag.", registry=registry), interval_seconds=0.0):
        pass
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert registry.get_sample_value("lag_seconds_count") == 0
