"""A line that kills or hangs the engine ends alone; every other gets its answer. Real PostgreSQL, simulated engines."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.flow.work_engine import WatchSettings
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from tests.cases.recording import RecordingEngine
from tests.service import TERMINAL, Service, line, running_service

SLOTS = 32
ONE_CHUNK = CutRules(min_requests=1000)


def mortal(*, restart_seconds: float = 0.05) -> SimulatedEngine:
    """An engine that takes a moment for each line, dies of a marked one, and comes back."""
    return SimulatedEngine(
        SimulatedSettings(
            latency=Latency(decode_seconds_per_token=0.002),
            max_num_seqs=SLOTS,
            crash_seconds=0.005,
            restart_seconds=restart_seconds,
        )
    )


def most_deaths(suspects: int) -> int:
    return math.ceil(math.log2(suspects)) + 2


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path, engines=[], cut=ONE_CHUNK) as running:
        yield running


@pytest.mark.parametrize("restart_seconds", [0.0, 0.7], ids=["back at once", "away for a while"])
async def test_a_line_that_kills_the_engine_is_set_aside_and_its_neighbours_succeed(
    service: Service, restart_seconds: float
) -> None:
    engine = mortal(restart_seconds=restart_seconds)
    service.add_worker(engine, slots=SLOTS)

    batch = await service.submit(
        line(f"r{n}", f"question {n}" + (" ~fault:crash~" if n == 333 else "")) for n in range(1000)
    )

    ended = await service.until(batch, seconds=120)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", 999, 1)
    assert (await service.results(batch))["r333"]["error"]["code"] == "engine_crashed"
    assert 2 <= engine.crashes <= most_deaths(SLOTS)
    await service.audit(batch)


@pytest.mark.parametrize("poison", [{7, 150}, {7, 8, 60, 61, 150}], ids=["two", "five"])
async def test_several_such_lines_end_one_after_the_other(service: Service, poison: set[int]) -> None:
    engine = mortal()
    service.add_worker(engine, slots=SLOTS)

    batch = await service.submit(
        line(f"r{n}", f"question {n}" + (" ~fault:crash~" if n in poison else "")) for n in range(200)
    )

    ended = await service.until(batch, seconds=120)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", 200 - len(poison), len(poison))
    results = await service.results(batch)
    assert {name for name, one in results.items() if one["error"]} == {f"r{n}" for n in poison}
    assert engine.crashes <= len(poison) * most_deaths(SLOTS)
    await service.audit(batch)


async def at_work(engine: SimulatedEngine) -> int:
    """How many requests run."""
    return (await engine.load()).running or 0


async def test_an_engine_that_died_of_nothing_in_particular_costs_no_line_an_attempt(service: Service) -> None:
    engine = RecordingEngine(inner := mortal())
    service.add_worker(engine, slots=SLOTS)
    batch = await service.submit(line(f"r{n}", f"question {n}") for n in range(400))
    for _ in range(6):
        finished = len(engine.finished)
        async with asyncio.timeout(30):
            # A death in the midst of an inquest, with one suspect alone at the engine, would convict it: rightly.
            while len(engine.finished) < finished + 20 or await at_work(inner) < SLOTS // 2:
                await asyncio.sleep(0.001)
        inner.crash()

    ended = await service.until(batch)

    assert (ended.status, ended.succeeded, inner.crashes) == ("completed", 400, 6)
    await service.audit(batch)


async def test_suspects_follow_their_chunk_to_another_worker(service: Service) -> None:
    """Each worker dies with its engine, as in a pod of both: what it died of must not kill one worker after another."""
    batch = await service.submit(
        line(f"r{n}", f"question {n}" + (" ~fault:crash~" if n == 33 else "")) for n in range(100)
    )
    deaths = 0
    for at in range(20):
        engine = mortal(restart_seconds=60.0)
        service.add_worker(engine, slots=SLOTS, checkpoint_seconds=0.05)
        async with asyncio.timeout(30):
            while not engine.crashes and (await service.get(batch)).status not in TERMINAL:
                await asyncio.sleep(0.001)
        if not engine.crashes:
            break
        deaths += 1
        service.workers[at].cancel()
        await asyncio.gather(service.workers[at], return_exceptions=True)
        await service.db.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 hour'", {})

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", 99, 1)
    assert (await service.results(batch))["r33"]["error"]["code"] == "engine_crashed"
    # Two deaths tell nothing where the worker could keep nothing of them.
    assert deaths <= most_deaths(100) + 2
    await service.audit(batch)


async def test_an_engine_that_hangs_is_started_anew_and_the_line_it_hangs_on_set_aside(service: Service) -> None:
    engine = mortal()
    service.add_worker(
        engine, slots=4, engine=WatchSettings(stall_seconds=0.2, check_seconds=0.1), request_timeout_seconds=60.0
    )

    batch = await service.submit(
        line(f"r{n}", f"question {n}" + (" ~fault:never_answers~" if n == 13 else "")) for n in range(40)
    )

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", 39, 1)
    assert (await service.results(batch))["r13"]["error"]["code"] == "engine_crashed"
    assert 2 <= engine.crashes <= most_deaths(4)
    await service.audit(batch)
