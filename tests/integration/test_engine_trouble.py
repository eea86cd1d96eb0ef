"""An engine in trouble costs no line anything; a line in trouble costs no other. Real PostgreSQL, simulated engines."""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.domain.outcomes import RetryPolicy
from slackwater.flow.work_engine import WatchSettings
from slackwater.inference.http_client import HttpLimits
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_server import serve
from tests.service import MODEL, Service, line, running_service

SLOTS = 8
LINES = 80
SLOW = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.01), max_num_seqs=SLOTS)
ONE_CHUNK = CutRules(min_requests=1000)
ONCE = RetryPolicy(max_attempts=1, first_pause_seconds=0.01, longest_pause_seconds=0.05)
"""One attempt held against a line ends it."""
TWICE = RetryPolicy(max_attempts=2, first_pause_seconds=0.01, longest_pause_seconds=0.05)
WATCH = WatchSettings(stall_seconds=0.4, check_seconds=0.05)
PATIENT = WatchSettings(check_seconds=0.05)


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path, engines=[], cut=ONE_CHUNK) as running:
        yield running


@pytest.fixture
async def behind() -> SimulatedEngine:
    """The simulated engine of a test."""
    return SimulatedEngine(SLOW)


@pytest.fixture
async def attached(behind: SimulatedEngine) -> AsyncIterator[OpenAIServer]:
    """The same as a worker reaches it over HTTP."""
    server = await serve(behind)
    engine = OpenAIServer(server.url, limits=HttpLimits(max_reply_bytes=1 << 20))
    yield engine
    await engine.close()
    await server.close()


def metric(service: Service, name: str, **labels: str) -> float:
    return service.metrics.registry.get_sample_value(f"slackwater_{name}", labels) or 0.0


def is_up(service: Service) -> bool:
    return metric(service, "engine_up", model=MODEL) == 1.0


async def until(reached: Any, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.01)


async def submit(service: Service, **marked: str) -> Any:
    """Submit lines, some with a mark in their text."""
    return await service.submit(line(f"r{n}", f"question {n} {marked.get(f'r{n}', '')}") for n in range(LINES))


@pytest.mark.parametrize(
    "illness",
    [
        "500", "html_502", "out_of_memory_500", "garbage", "empty_200", "truncated_json", "error_body_with_200",
        "redirect", "model_gone_404", "unauthorized_401", "wrong_model_echo", "503", "503_retry_after_1", "429",
        "close_mid_body", "hang_up", "flood", "never_answers", "trickle",
    ],
)  # fmt: skip
async def test_an_engine_that_is_ill_for_everybody_costs_no_line_an_attempt(
    service: Service, behind: SimulatedEngine, attached: OpenAIServer, illness: str
) -> None:
    service.add_worker(attached, slots=SLOTS, retries=ONCE, engine=WATCH)
    batch = await submit(service)
    await until(lambda: behind.answered >= SLOTS)

    behind.sicken(illness)
    await until(lambda: not is_up(service))
    behind.heal()

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES, 0)
    assert is_up(service)
    assert sum(metric(service, "engine_outages_total", model=MODEL, cause=cause) for cause in ("ill", "hung")) >= 1
    await service.audit(batch)


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("out_of_memory_500", 500, None),
        ("model_gone_404", 404, None),
        ("garbage", None, "invalid_engine_reply"),
        ("wrong_model_echo", None, "invalid_engine_reply"),
        ("close_mid_body", None, "engine_unreachable"),
        ("hang_up", None, "engine_unreachable"),
        ("flood", None, "reply_too_large"),
        ("trickle", None, "request_timeout"),
        ("never_answers", None, "request_timeout"),
    ],
)
async def test_a_line_that_alone_meets_a_fault_ends_alone_with_its_error(
    service: Service, attached: OpenAIServer, fault: str, status: int | None, code: str | None
) -> None:
    service.add_worker(attached, slots=SLOTS, retries=TWICE, engine=PATIENT, request_timeout_seconds=2.0)

    batch = await submit(service, r33=f"~fault:{fault}~")

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES - 1, 1)
    bad = (await service.results(batch))["r33"]
    assert ((bad["response"] or {}).get("status_code"), (bad["error"] or {}).get("code")) == (status, code)
    assert sum(metric(service, "engine_outages_total", model=MODEL, cause=cause) for cause in ("ill", "hung")) == 0
    await service.audit(batch)


async def test_a_worker_whose_engine_stays_ill_gives_its_chunks_back_and_takes_none(service: Service) -> None:
    ill = SimulatedEngine(SLOW)
    service.add_worker(ill, slots=SLOTS, retries=ONCE, engine=WatchSettings(outage_seconds=0.2, check_seconds=0.05))
    batch = await submit(service)
    await until(lambda: ill.answered >= SLOTS)

    ill.sicken("500")

    async with asyncio.timeout(30):
        while await service.db.fetch("test", "SELECT 1 FROM chunks WHERE state = 'leased'", {}):
            await asyncio.sleep(0.02)
    (worker,) = await service.db.fetch("test", "SELECT engine_ready FROM workers", {})
    assert not worker.engine_ready
    assert metric(service, "leases_total", outcome="released") >= 1
    # Another worker goes on where it stopped, and it goes on itself once it is well.
    service.add_worker(SimulatedEngine())
    ended = await service.until(batch)
    assert (ended.succeeded, ended.errored) == (LINES, 0)
    ill.heal()
    await until(lambda: is_up(service))
    await service.audit(batch)


async def test_an_engine_that_refuses_connections_is_waited_for(service: Service) -> None:
    behind = SimulatedEngine(SLOW)
    server = await serve(behind)
    engine = OpenAIServer(server.url)
    service.add_worker(engine, slots=SLOTS, retries=ONCE, engine=WATCH)
    batch = await submit(service)
    await until(lambda: behind.answered >= SLOTS)
    await server.close()
    await until(lambda: not is_up(service))

    again = await serve(SimulatedEngine(SLOW), port=int(server.url.rpartition(":")[2]))

    ended = await service.until(batch)
    assert (ended.succeeded, ended.errored) == (LINES, 0)
    assert metric(service, "engine_outages_total", model=MODEL, cause="away") >= 1
    await service.audit(batch)
    await engine.close()
    await again.close()


async def test_an_engine_of_ours_that_stays_ill_is_started_anew(service: Service) -> None:
    engine = SimulatedEngine(SimulatedSettings(latency=SLOW.latency, max_num_seqs=SLOTS, restart_seconds=0.05))
    service.add_worker(engine, slots=SLOTS, retries=ONCE, engine=WATCH)
    batch = await submit(service)
    await until(lambda: engine.answered >= SLOTS)

    engine.sicken("500")
    await until(lambda: engine.crashes > 0)
    engine.heal()

    ended = await service.until(batch)
    assert (ended.succeeded, ended.errored) == (LINES, 0)
    await service.audit(batch)


async def test_a_full_engine_is_asked_again_only_after_the_time_it_names(service: Service) -> None:
    asked: list[float] = []

    class Counting(SimulatedEngine):
        def take(self, path: str, body: bytes) -> Any:
            if b"question" not in body:
                asked.append(time.monotonic())
            return super().take(path, body)

    engine = Counting(SLOW)
    service.add_worker(engine, slots=SLOTS, retries=ONCE, engine=WATCH)
    batch = await submit(service)
    await until(lambda: engine.answered >= SLOTS)

    engine.sicken("503_retry_after_1")
    await until(lambda: len(asked) >= 3)
    engine.heal()

    assert (await service.until(batch)).succeeded == LINES
    assert all(later - earlier >= 0.95 for earlier, later in pairwise(asked[:3]))
    await service.audit(batch)
