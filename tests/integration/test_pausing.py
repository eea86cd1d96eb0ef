"""A paused batch: nothing of it runs or is lost, and its deadline goes on. Real PostgreSQL, simulated engines."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.batches import pause_batch, resume_batch
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.domain.ids import BatchId
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from tests.cases.recording import RecordingEngine
from tests.service import Service, line, running_service

SLOTS = 8
LINES = 120
SLOW = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.02), max_num_seqs=SLOTS)


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(
        db, store, database_url, tmp_path, engines=[], cut=CutRules(min_requests=1000)
    ) as running:
        yield running


async def pause(service: Service, batch: BatchId) -> None:
    await pause_batch(service.db, tenant_id=service.tenant, dialect="openai", batch_id=batch)


async def resume(service: Service, batch: BatchId) -> None:
    await resume_batch(service.db, tenant_id=service.tenant, dialect="openai", batch_id=batch)


async def paused_half_way(service: Service, engine: RecordingEngine) -> BatchId:
    """A batch of which some lines are finished, paused, with nothing of it at the engine any more."""
    service.add_worker(engine, slots=SLOTS)
    batch = await service.submit((line(f"r{n}", f"question {n}") for n in range(LINES)), window=timedelta(hours=1))
    async with asyncio.timeout(30):
        while len(engine.finished) < 2 * SLOTS:
            await asyncio.sleep(0.01)
    await pause(service, batch)
    async with asyncio.timeout(2):
        while (await engine.load()).running:
            await asyncio.sleep(0.01)
    return batch


async def test_pausing_stops_a_batch_within_two_seconds_and_resuming_runs_only_the_rest(service: Service) -> None:
    engine = RecordingEngine(SimulatedEngine(SLOW))
    batch = await paused_half_way(service, engine)
    sent, finished = len(engine.sent), len(engine.finished)
    await asyncio.sleep(1.5)
    rows = await service.db.fetch("test", "SELECT state FROM chunks", {})
    assert (len(engine.sent), [row.state for row in rows]) == (sent, ["pending"])

    await resume(service, batch)

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == ("completed", LINES)
    assert len(engine.finished) == LINES
    assert len(engine.sent) == sent + LINES - finished
    await service.audit(batch)


async def test_a_batch_paused_before_it_began_waits_while_others_run(service: Service) -> None:
    paused = await service.submit([line("a")])
    await pause(service, paused)
    service.add_worker(SimulatedEngine())
    other = await service.submit([line("b")])

    assert (await service.until(other)).succeeded == 1
    assert (await service.until(paused, "in_progress")).succeeded == 0

    await resume(service, paused)
    assert (await service.until(paused)).succeeded == 1
    await service.audit(paused)


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_a_paused_batch_ends_with_what_it_had_finished(service: Service, ending: str) -> None:
    engine = RecordingEngine(SimulatedEngine(SLOW))
    batch = await paused_half_way(service, engine)

    if ending == "cancelled":
        await service.cancel(batch)
    else:
        await service.db.fetch("test", "UPDATE batches SET deadline = now()", {})

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == (ending, len(engine.finished))
    assert len(await service.results(batch)) == LINES
    await service.audit(batch)
