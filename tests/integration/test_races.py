"""Races, stepped through the transactions' seam: both ways round, and every batch ends with the auditor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.election import ElectionLock
from slackwater.db.files import delete_file
from slackwater.db.session import Database, PoolSettings
from slackwater.domain.cutting import CutRules
from slackwater.domain.errors import StateConflict
from slackwater.domain.ids import BatchId
from slackwater.flow.loop import run_stage
from slackwater.flow.schedule import Leader
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from tests.service import Service, line, running_service, stages
from tests.stepping import SteppingSeam

ONE_CHUNK = CutRules(min_requests=1000)
LINES = 24
SLOW = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.04), max_num_seqs=8)


@pytest.fixture
def seam() -> SteppingSeam:
    return SteppingSeam()


@pytest.fixture
async def stepped(database_url: str, seam: SteppingSeam) -> AsyncIterator[Database]:
    """The database through the seam; wide enough for a transaction to stand while others pass."""
    database = Database.connect(database_url, pool=PoolSettings(hot=12, other=4), seam=seam)
    yield database
    await database.close()


@pytest.fixture
async def service(
    stepped: Database, store: BlobStore, database_url: str, tmp_path: Path, seam: SteppingSeam
) -> AsyncIterator[Service]:
    async with running_service(stepped, store, database_url, tmp_path, cut=ONE_CHUNK) as running:
        with seam.letting_go():
            yield running


async def submit(service: Service, lines: int = LINES) -> BatchId:
    return await service.submit((line(f"r{n}", f"question {n}") for n in range(lines)), window=timedelta(hours=1))


async def let_the_window_end(db: Database) -> None:
    await db.fetch("test", "UPDATE batches SET deadline = now() - interval '1 second'", {})


async def stop(service: Service, batch: BatchId, ending: str) -> None:
    """Cancel a batch, or let its window end and have that noticed."""
    if ending == "cancelled":
        assert (await service.cancel(batch)).status == "cancelling"
    else:
        await let_the_window_end(service.db)
        await service.until(batch, "finalizing", "expired")


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_a_stop_that_comes_before_a_commit_keeps_what_was_answered(
    service: Service, seam: SteppingSeam, ending: str
) -> None:
    step = seam.hold("before", "work.commit")
    batch = await submit(service)
    await step.wait()

    await stop(service, batch, ending)
    step.go_on.set()

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == (ending, LINES)
    assert len(await service.results(batch)) == LINES
    await service.audit(batch)


async def test_a_cancel_that_comes_after_the_last_commit_is_refused_and_the_results_stay(
    service: Service, seam: SteppingSeam
) -> None:
    step = seam.hold("after", "work.commit")
    service.held.add("finish")
    batch = await submit(service)
    await step.wait()

    with pytest.raises(StateConflict):
        await service.cancel(batch)
    step.go_on.set()
    service.held.clear()

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == ("completed", LINES)
    await service.audit(batch)


async def test_a_window_that_ends_after_the_last_commit_changes_nothing(service: Service, seam: SteppingSeam) -> None:
    step = seam.hold("after", "work.commit")
    batch = await submit(service)
    await step.wait()

    await let_the_window_end(service.db)
    step.go_on.set()

    assert (await service.until(batch)).status == "completed"
    await service.audit(batch)


async def test_a_cancel_whose_row_is_locked_makes_the_commit_wait_and_both_stand(
    service: Service, seam: SteppingSeam
) -> None:
    commit = seam.hold("before", "work.commit")
    batch = await submit(service)
    await commit.wait()
    cancel = seam.hold("before", "batches.cancel")
    cancelling = asyncio.create_task(service.cancel(batch))
    await cancel.wait()

    # The cancel has the row's lock and has not committed: the commit waits for it.
    commit.go_on.set()
    async with asyncio.timeout(30):
        while not await service.db.fetch("test", "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'", {}):
            await asyncio.sleep(0.01)
    cancel.go_on.set()

    assert (await cancelling).status == "cancelling"
    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == ("cancelled", LINES)
    await service.audit(batch)


async def test_a_cancel_during_assembly_is_refused_and_the_results_stay(service: Service, seam: SteppingSeam) -> None:
    step = seam.hold("before", "finish.parts")
    batch = await submit(service)
    await step.wait()

    with pytest.raises(StateConflict, match="finalizing"):
        await service.cancel(batch)
    step.go_on.set()

    assert (await service.until(batch)).status == "completed"
    await service.audit(batch)


async def test_a_cancel_just_before_assembly_ends_waits_and_is_refused(service: Service, seam: SteppingSeam) -> None:
    step = seam.hold("before", "finish.end")
    batch = await submit(service)
    await step.wait()
    cancelling = asyncio.create_task(service.cancel(batch))
    step.go_on.set()

    with pytest.raises(StateConflict):
        await cancelling
    assert (await service.until(batch)).status == "completed"
    await service.audit(batch)


async def test_a_second_cancel_during_the_assembly_of_a_cancelled_batch_changes_nothing(
    service: Service, seam: SteppingSeam
) -> None:
    service.held.add("schedule")
    batch = await submit(service)
    await service.until(batch, "in_progress")
    step = seam.hold("before", "finish.parts")
    await service.cancel(batch)
    await step.wait()

    assert (await service.cancel(batch)).status == "cancelling"
    step.go_on.set()

    ended = await service.until(batch)
    assert (ended.status, ended.cancelled) == ("cancelled", LINES)
    await service.audit(batch)


@pytest.mark.parametrize("when", ["plan.models", "plan.publish"])
async def test_an_input_deleted_while_it_is_planned_stays_readable_to_its_batch(
    service: Service, seam: SteppingSeam, when: str
) -> None:
    step = seam.hold("before", when)
    batch = await submit(service)
    await step.wait()
    input_file = (await service.get(batch)).input_file_id

    assert await delete_file(service.db, tenant_id=service.tenant, file_id=input_file)
    # A whole pass of the sweep, which would take the bytes if nobody needed them.
    purge = seam.hold("after", "sweep.purgeable")
    await purge.wait()
    purge.go_on.set()
    assert await service.store.size(keys.input_key(input_file))
    step.go_on.set()

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == ("completed", LINES)
    assert len(await service.results(batch)) == LINES
    await service.audit(batch)


async def test_an_input_deleted_before_it_is_planned_stays_readable_to_its_batch(service: Service) -> None:
    service.held.add("plan")
    batch = await submit(service)
    input_file = (await service.get(batch)).input_file_id

    assert await delete_file(service.db, tenant_id=service.tenant, file_id=input_file)
    service.held.clear()

    assert (await service.until(batch)).succeeded == LINES
    await service.audit(batch)


@pytest.mark.parametrize("late", ["work.commit", "work.checkpoint"])
async def test_a_worker_whose_lease_lapsed_commits_and_keeps_nothing(
    stepped: Database, store: BlobStore, database_url: str, tmp_path: Path, seam: SteppingSeam, late: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(
            running_service(stepped, store, database_url, tmp_path, engines=[], cut=ONE_CHUNK)
        )
        stack.enter_context(seam.letting_go())
        slow = SLOW if late == "work.checkpoint" else SimulatedSettings()
        step = seam.hold("before", late)
        service.add_worker(SimulatedEngine(slow), slots=8, checkpoint_seconds=0.2)
        batch = await submit(service, 120)
        await step.wait()
        # It freezes here, for longer than its lease lasts.
        beat = seam.hold("before", "work.sync")
        await beat.wait()
        await stepped.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 hour'", {})
        service.add_worker(SimulatedEngine())
        ended = await service.until(batch)
        counted = "SELECT (SELECT count(*) FROM usage_ledger) AS commits, (SELECT count(*) FROM chunk_segments) AS kept"
        before = await stepped.fetch("test", counted, {})

        passed = seam.hold("after", late)
        step.go_on.set()
        await passed.wait()

        assert (ended.status, ended.succeeded) == ("completed", 120)
        assert [tuple(row) for row in await stepped.fetch("test", counted, {})] == [tuple(*before)] == [(1, 0)]
        passed.go_on.set()
        beat.go_on.set()
        assert len(await service.results(batch)) == 120
        await service.audit(batch)


async def test_two_controls_on_every_stage_do_each_thing_once(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    told_to_stop = asyncio.Event()
    async with running_service(db, store, database_url, tmp_path, cut=CutRules(min_requests=8)) as service:
        other = Leader(
            db=db, lock=ElectionLock(database_url), holder="other", granted=lambda _: None, reaped=lambda _: None
        )
        loops = [
            asyncio.create_task(run_stage(stage, stop=told_to_stop, observer=service.metrics.stage(stage.name)))
            for stage in stages(db, store, service.metrics, other, tmp_path, CutRules(min_requests=8))
        ]
        service.add_worker(SimulatedEngine(), name="second")
        batches = [await submit(service, 40) for _ in range(16)]
        for batch in batches[::4]:
            await service.until(batch, "in_progress", "finalizing", "completed")
            try:
                await service.cancel(batch)
            except StateConflict:
                assert (await service.get(batch)).status in {"finalizing", "completed"}

        ended = [await service.until(batch) for batch in batches]

        assert {one.status for one in ended} <= {"completed", "cancelled"}
        for batch in batches:
            await service.audit(batch)
            assert len(await service.results(batch)) == 40
        told_to_stop.set()
        await asyncio.gather(*loops)
        await other.close()
