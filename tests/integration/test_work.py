"""Leased chunks through a worker: results, retries, cancel, expiry, fences. Real PostgreSQL, simulated engines."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable, LeaseLost
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_faults import FaultPlan
from tests.service import Service, line, running_service


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path) as running:
        yield running


async def test_every_request_gets_exactly_one_result(service: Service) -> None:
    batch = await service.submit(line(f"r{n}", f"question {n}") for n in range(250))
    ended = await service.until(batch)
    assert (ended.status, ended.total, ended.succeeded) == ("completed", 250, 250)
    results = await service.results(batch)
    assert set(results) == {f"r{n}" for n in range(250)}
    report = await service.audit(batch)
    assert report.lines == 250


async def test_a_batch_of_one_request_completes(service: Service) -> None:
    batch = await service.submit([line("only")])
    assert (await service.until(batch)).status == "completed"
    results = await service.results(batch)
    assert results["only"]["response"]["body"]["choices"][0]["message"]["role"] == "assistant"
    await service.audit(batch)


async def test_an_alias_reaches_the_engine_as_the_model_and_the_answer_names_the_alias(service: Service) -> None:
    batch = await service.submit([line("a", model="gpt-4.1-mini")])
    await service.until(batch)
    results = await service.results(batch)
    assert results["a"]["response"]["body"]["model"] == "gpt-4.1-mini"
    await service.audit(batch)


async def test_a_request_the_engine_refuses_is_its_own_error(service: Service) -> None:
    batch = await service.submit([line("good"), line("bad", temperature="hot")])
    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", 1, 1)
    bad = (await service.results(batch))["bad"]
    assert (bad["response"]["status_code"], bad["error"]) == (400, None)
    await service.audit(batch)


SLOW = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.05), max_num_seqs=8)


@pytest.fixture
async def slow_service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path, engines=[SimulatedEngine(SLOW)]) as running:
        yield running


async def test_a_cancel_keeps_what_is_done_and_answers_the_rest(slow_service: Service) -> None:
    batch = await slow_service.submit(line(f"r{n}", f"{n}") for n in range(300))
    async with asyncio.timeout(30):
        while (await slow_service.get(batch)).succeeded == 0:
            await asyncio.sleep(0.02)
    cancelling = await slow_service.cancel(batch)
    assert cancelling.status == "cancelling"
    ended = await slow_service.until(batch)
    assert ended.status == "cancelled"
    assert 0 < ended.succeeded < 300
    assert ended.succeeded + ended.cancelled == ended.total == 300
    codes = {(one["error"] or {}).get("code") for one in (await slow_service.results(batch)).values()}
    assert codes == {None, "batch_cancelled"}
    await slow_service.audit(batch)


async def test_an_expired_window_keeps_what_is_done_and_answers_the_rest(slow_service: Service) -> None:
    batch = await slow_service.submit((line(f"r{n}", f"{n}") for n in range(400)), window=timedelta(seconds=4))
    ended = await slow_service.until(batch)
    assert ended.status == "expired"
    assert ended.expired > 0
    assert ended.succeeded + ended.expired == ended.total == 400
    codes = {(one["error"] or {}).get("code") for one in (await slow_service.results(batch)).values()}
    assert codes == {None, "batch_expired"}
    await slow_service.audit(batch)


async def test_a_window_that_ends_without_any_worker_expires(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    async with running_service(db, store, database_url, tmp_path, engines=[]) as service:
        batch = await service.submit([line("a"), line("b")], window=timedelta(seconds=1))
        ended = await service.until(batch)
        assert (ended.status, ended.expired, ended.output_file_id) == ("expired", 2, None)
        await service.audit(batch)


async def test_two_workers_share_one_batch(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> None:
    engines = [SimulatedEngine(SLOW), SimulatedEngine(SLOW)]
    async with running_service(db, store, database_url, tmp_path, engines=engines) as service:
        batch = await service.submit(line(f"r{n}", f"{n}") for n in range(400))
        assert (await service.until(batch)).succeeded == 400
        assert all(engine.answered > 50 for engine in engines)
        await service.audit(batch)


async def test_a_worker_that_vanishes_loses_nothing(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    async with running_service(db, store, database_url, tmp_path, engines=[SimulatedEngine(SLOW)]) as service:
        batch = await service.submit(line(f"r{n}", f"{n}") for n in range(300))
        async with asyncio.timeout(30):
            while (await service.get(batch)).succeeded == 0:
                await asyncio.sleep(0.02)
        service.workers[0].cancel()
        await asyncio.gather(service.workers[0], return_exceptions=True)
        # The same name comes back as another incarnation: its leases end at once, not after the heartbeat's age.
        service.add_worker(SimulatedEngine(), name="worker-1")
        assert (await service.until(batch)).succeeded == 300
        await service.audit(batch)


async def test_a_worker_whose_name_is_taken_ends_and_says_why(service: Service) -> None:
    first = service.workers[0]
    async with asyncio.timeout(10):
        while not await service.db.fetch("test", "SELECT 1 FROM workers WHERE engine_ready", {}):
            await asyncio.sleep(0.02)

    service.add_worker(SimulatedEngine(), name="worker-1")

    with pytest.raises(LeaseLost, match="taken this worker's name"):
        await asyncio.wait_for(asyncio.shield(first), 10)
    service.workers.remove(first)


async def test_an_engine_that_is_away_costs_no_line_its_tries(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    engine = SimulatedEngine(SLOW)
    async with running_service(db, store, database_url, tmp_path, engines=[engine]) as service:
        batch = await service.submit(line(f"r{n}", f"{n}") for n in range(60))
        async with asyncio.timeout(30):
            while engine.answered < 5:
                await asyncio.sleep(0.01)
        engine.crash()
        await asyncio.sleep(1.5)
        assert (await service.get(batch)).errored == 0
        engine.restart()
        assert (await service.until(batch)).succeeded == 60
        await service.audit(batch)


async def test_every_fault_of_an_engine_leaves_one_result_a_request(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    plan = FaultPlan(seed=7, shares={"empty_500": 0.05, "503": 0.05, "garbage": 0.05, "hang_up": 0.05})
    engine = SimulatedEngine(SimulatedSettings(plan=plan))
    async with running_service(db, store, database_url, tmp_path, engines=[engine]) as service:
        batch = await service.submit(line(f"r{n}", f"{n}") for n in range(500))
        ended = await service.until(batch)
        assert ended.status == "completed"
        assert ended.succeeded + ended.errored == 500
        await service.audit(batch)


async def test_a_worker_told_to_stop_ends_although_its_database_is_away(
    slow_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await slow_service.submit(line(f"r{n}", f"{n}") for n in range(300))
    async with asyncio.timeout(30):
        while (await slow_service.get(batch)).succeeded == 0:
            await asyncio.sleep(0.02)
    monkeypatch.setattr("slackwater.flow.work._LAST_SECONDS", 0.5)
    fetch = slow_service.db.fetch

    async def away(stage: str, statement: str, params: Mapping[str, Any]) -> list[Any]:
        if stage.startswith("work."):
            raise DatabaseUnavailable("the database is away")
        return await fetch(stage, statement, params)

    with monkeypatch.context() as outage:
        outage.setattr(slow_service.db, "fetch", away)
        slow_service.worker_stops[0].set()
        async with asyncio.timeout(15):
            await slow_service.workers[0]

    # Its leases end with its heartbeat, here at once; nothing it had finished and not committed counts.
    await slow_service.db.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 hour'", {})
    slow_service.add_worker(SimulatedEngine(), name="another")
    assert (await slow_service.until(batch)).succeeded == 300
    await slow_service.audit(batch)


async def test_a_drained_worker_ends_what_it_runs_and_gives_back_the_rest(slow_service: Service) -> None:
    batch = await slow_service.submit(line(f"r{n}", f"{n}") for n in range(300))
    async with asyncio.timeout(30):
        while (await slow_service.get(batch)).succeeded == 0:
            await asyncio.sleep(0.02)
    slow_service.worker_stops[0].set()
    async with asyncio.timeout(20):
        await slow_service.workers[0]
    assert (await slow_service.get(batch)).status == "in_progress"
    slow_service.add_worker(SimulatedEngine())
    assert (await slow_service.until(batch)).succeeded == 300
    await slow_service.audit(batch)
