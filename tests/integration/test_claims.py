"""Claims of planning and assembling, and a worker's goodbye: nobody waits for a process that was told to stop."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.election import ElectionLock
from slackwater.db.session import Database, PoolSettings
from slackwater.domain.cutting import CutRules
from slackwater.domain.errors import Unavailable
from slackwater.domain.ids import BatchId
from slackwater.flow.claims import MOST_CLAIMS
from slackwater.flow.loop import Stage, run_stage
from slackwater.flow.schedule import Leader
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from tests.cases.recording import RecordingEngine, WatchedStore
from tests.service import Service, line, running_service, stages
from tests.stepping import SteppingSeam

SLOW = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.04), max_num_seqs=8)
"""A third of a second a line."""
CLAIM_SECONDS = 60.0


@pytest.fixture
async def other_db(database_url: str) -> AsyncIterator[tuple[Database, SteppingSeam]]:
    """The database as a second control sees it, with steps to stop at."""
    seam = SteppingSeam()
    database = Database.connect(database_url, pool=PoolSettings(hot=4, other=2), seam=seam)
    yield database, seam
    await database.close()


def stage_of(name: str, db: Database, service: Service, database_url: str, scratch: Path, store: Any = None) -> Stage:
    """A stage of another control: plan, or finish (the assembling one)."""
    leader = Leader(
        db=db, lock=ElectionLock(database_url), holder="other", granted=lambda _: None, reaped=lambda _: None
    )
    found = stages(db, store or service.store, service.metrics, leader, scratch, CutRules(min_requests=1000))
    return [stage for stage in found if stage.name == name][-1]


async def claims_of(db: Database, batch: BatchId) -> int:
    rows = await db.fetch("test", "SELECT claims FROM batches WHERE id = %(id)s", {"id": batch})
    return int(rows[0].claims)


@pytest.mark.parametrize(("name", "point"), [("plan", "plan.publish"), ("finish", "finish.end")])
async def test_a_control_that_is_told_to_stop_gives_its_claim_back_at_once(
    db: Database,
    store: BlobStore,
    database_url: str,
    tmp_path: Path,
    other_db: tuple[Database, SteppingSeam],
    name: str,
    point: str,
) -> None:
    stopping_db, seam = other_db
    step = seam.hold("before", point)
    told_to_stop = asyncio.Event()
    async with running_service(db, store, database_url, tmp_path, held={name}) as service:
        stage = stage_of(name, stopping_db, service, database_url, tmp_path)
        loop = asyncio.create_task(run_stage(stage, stop=told_to_stop, observer=service.metrics.stage(stage.name)))
        batch = await service.submit(line(f"r{n}") for n in range(4))
        await step.wait()

        told_to_stop.set()
        await asyncio.wait_for(loop, 30)
        stopped_at = time.perf_counter()
        service.held.clear()

        ended = await service.until(batch)
        assert time.perf_counter() - stopped_at < CLAIM_SECONDS / 2
        assert (ended.status, ended.succeeded) == ("completed", 4)
        await service.audit(batch)


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("plan", "validating", "planning_failed"), ("finish", "finalizing", "finishing_failed")],
)
async def test_a_batch_that_ends_every_process_that_claims_it_is_set_aside(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path, name: str, status: str, code: str
) -> None:
    async with running_service(db, store, database_url, tmp_path, held={name}) as service:
        batch = await service.submit([line("r")])
        await service.until(batch, status)
        await db.fetch("test", "UPDATE batches SET claims = %(n)s, claimed_until = now()", {"n": MOST_CLAIMS})

        service.held.clear()

        ended = await service.until(batch)
        assert ended.status == "failed"
        assert ended.errors is not None
        assert [error["code"] for error in ended.errors] == [code]
        await service.audit(batch)


@pytest.mark.parametrize("name", ["plan", "finish"])
async def test_a_batch_survives_one_claim_less_than_it_takes(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path, name: str
) -> None:
    async with running_service(db, store, database_url, tmp_path, held={name}) as service:
        batch = await service.submit([line("r")])
        await service.until(batch, "validating" if name == "plan" else "finalizing")
        await db.fetch("test", "UPDATE batches SET claims = %(n)s", {"n": MOST_CLAIMS - 1})

        service.held.clear()

        assert (await service.until(batch)).status == "completed"
        await service.audit(batch)


async def test_a_store_that_is_away_costs_a_batch_no_claim(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    async with running_service(db, store, database_url, tmp_path, held={"plan"}) as service:
        batch = await service.submit([line("r")])
        away = AwayStore(store)
        stage = stage_of("plan", db, service, database_url, tmp_path, store=away)

        with pytest.raises(Unavailable):
            await stage.once()

        assert await claims_of(db, batch) == 0
        assert not await stage.once(), "it waits a little, and lets others come first"
        await db.fetch("test", "UPDATE batches SET claimed_until = now()", {})
        service.held.clear()
        assert (await service.until(batch)).status == "completed"
        await service.audit(batch)


class AwayStore(WatchedStore):
    """A store that cannot be read."""

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Fail."""
        async for piece in self.inner.read(key, start=start, length=length):
            yield piece
            raise Unavailable("the store broke off")


async def test_a_gracefully_stopped_workers_chunk_runs_again_within_two_seconds(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    async with running_service(
        db, store, database_url, tmp_path, engines=[], cut=CutRules(min_requests=1000)
    ) as service:
        first, second = RecordingEngine(SimulatedEngine(SLOW)), RecordingEngine(SimulatedEngine())
        service.add_worker(first, slots=8)
        batch = await service.submit(line(f"r{n}") for n in range(120))
        async with asyncio.timeout(30):
            while len(first.finished) < 16:
                await asyncio.sleep(0.01)
        service.add_worker(second, slots=8)

        service.worker_stops[0].set()
        await service.workers[0]
        ended_at = time.perf_counter()
        async with asyncio.timeout(30):
            while not second.sent:
                await asyncio.sleep(0.005)

        assert time.perf_counter() - ended_at < 2
        assert (await service.until(batch)).succeeded == 120
        await service.audit(batch)


async def test_a_worker_whose_grace_ends_between_dropping_and_releasing_a_chunk_still_gives_it_back(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    watched = WatchedStore(store)

    async def hang() -> None:
        await asyncio.Event().wait()

    async with running_service(
        db, watched, database_url, tmp_path, engines=[], cut=CutRules(min_requests=1000)
    ) as service:
        first = RecordingEngine(SimulatedEngine(SLOW))
        service.add_worker(first, slots=8, drain_seconds=0.5)
        batch = await service.submit(line(f"r{n}") for n in range(40))
        async with asyncio.timeout(30):
            while len(first.finished) < 8:
                await asyncio.sleep(0.01)
        # The checkpoint of the hand-over never ends: the chunk is dropped, and its lease not yet given back.
        watched.before["work.segment"] = hang

        service.worker_stops[0].set()
        await asyncio.wait_for(service.workers[0], 60)

        (chunk,) = await db.fetch("test", "SELECT state, attempts FROM chunks", {})
        assert (chunk.state, chunk.attempts) == ("pending", 0)
        del watched.before["work.segment"]
        service.add_worker(SimulatedEngine())
        assert (await service.until(batch)).succeeded == 40
        await service.audit(batch)
