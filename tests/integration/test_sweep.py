"""What may go, goes, and nothing else. Real PostgreSQL and a local store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.files import delete_file
from slackwater.db.session import Database
from slackwater.domain.errors import ObjectMissing
from slackwater.domain.ids import batch_id, file_id
from slackwater.flow.audit import audit
from slackwater.flow.sweep import Sweeper
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from tests.service import Service, line, new_uuid, running_service


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path) as running:
        yield running


def sweeper(service: Service, *, keep_seconds: float = 0.0, days_later: float = 0.0) -> Sweeper:
    later = datetime.now(UTC) + timedelta(days=days_later)
    return Sweeper(db=service.db, store=service.store, keep_seconds=keep_seconds, now=lambda: later)


def every_sweep(swept: Sweeper) -> list[Awaitable[bool]]:
    return [
        swept.sweep_files_once(),
        swept.sweep_batches_once(),
        swept.sweep_orphans_once(),
        swept.sweep_leftovers_once(),
        swept.sweep_segments_once(),
        swept.forget_repeats_once(),
        swept.forget_workers_once(),
    ]


async def test_a_swept_batch_keeps_its_results_and_loses_its_working_objects(service: Service) -> None:
    batch = await service.submit(line(f"r{n}") for n in range(300))
    await service.until(batch)
    assert await sweeper(service).sweep_batches_once()
    assert not await sweeper(service).sweep_batches_once()
    left = [stored.key async for stored in service.store.list(keys.parts_prefix(batch))]
    assert left == []
    assert len(await service.results(batch)) == 300
    await service.audit(batch)


async def test_a_single_part_that_became_the_result_file_stays(service: Service) -> None:
    batch = await service.submit([line("only")])
    await service.until(batch)
    await sweeper(service).sweep_batches_once()
    assert set(await service.results(batch)) == {"only"}


async def test_objects_without_a_row_go_once_they_are_old(service: Service) -> None:
    stray = [keys.input_key(file_id(new_uuid())), keys.output_key(batch_id(new_uuid()), new_uuid())]
    for key in stray:
        await service.store.put(key, b"stray", stage="test")
    assert not await sweeper(service).sweep_orphans_once()
    assert await sweeper(service, days_later=2).sweep_orphans_once()
    for key in stray:
        with pytest.raises(ObjectMissing):
            await service.store.get(key)


async def test_no_object_that_somebody_needs_is_an_orphan(service: Service) -> None:
    batch = await service.submit(line(f"r{n}") for n in range(250))
    await service.until(batch)
    await service.upload(b"not used yet")
    before = {stored.key for folder in keys.FOLDERS for stored in [s async for s in service.store.list(folder)]}
    await sweeper(service, days_later=2).sweep_orphans_once()
    after = {stored.key for folder in keys.FOLDERS for stored in [s async for s in service.store.list(folder)]}
    assert after == before
    await service.audit(batch)


async def test_requests_are_remembered_for_a_day(service: Service) -> None:
    insert = "INSERT INTO idempotency_keys SELECT %s, 'r', 'k' || n, '', 'x', now() - make_interval(hours => n)"
    async with service.db.transaction("test") as connection:
        await connection.exec_driver_sql(insert + " FROM generate_series(20, 28) n", (service.tenant,))
    assert await sweeper(service).forget_repeats_once()
    assert not await sweeper(service).forget_repeats_once()
    rows = await service.db.fetch("test", "SELECT key FROM idempotency_keys", {})
    assert sorted(row.key for row in rows) == ["k20", "k21", "k22", "k23"]


async def test_a_deleted_input_loses_its_bytes_only_when_its_batch_has_ended(service: Service) -> None:
    service.worker_stops[0].set()
    await service.workers[0]
    batch = await service.submit([line("a")])
    running = await service.until(batch, "in_progress")
    await delete_file(service.db, tenant_id=service.tenant, file_id=running.input_file_id)
    await sweeper(service).sweep_files_once()
    assert await service.store.get(keys.input_key(running.input_file_id))
    await service.cancel(batch)
    await service.until(batch)
    await sweeper(service).sweep_files_once()
    with pytest.raises(ObjectMissing):
        await service.store.get(keys.input_key(running.input_file_id))
    (unchecked,) = (await service.audit(batch)).unchecked
    assert "input was deleted" in unchecked


async def test_what_its_owner_deleted_of_a_batch_is_no_fault_and_what_is_left_is_checked(service: Service) -> None:
    batch = await service.submit([line("a"), line("b")])
    ended = await service.until(batch)
    assert ended.output_file_id is not None
    await delete_file(service.db, tenant_id=service.tenant, file_id=ended.output_file_id)
    await service.audit(batch)

    await sweeper(service).sweep_files_once()
    (unchecked,) = (await service.audit(batch)).unchecked
    assert "output file was deleted" in unchecked

    await service.db.fetch("test", "UPDATE batches SET succeeded = 1, errored = 1 WHERE id = %(id)s", {"id": batch})
    report = await audit(service.db, service.store, batch)
    assert any("failed is the number of errors" in fault for fault in report.faults)


async def test_a_batch_cancelled_before_it_was_planned_is_sound(service: Service) -> None:
    service.stop.set()
    await asyncio.sleep(0.3)
    batch = await service.submit([line("a")])
    assert (await service.cancel(batch)).status == "cancelled"

    report = await service.audit(batch)

    assert report.checks
    assert not report.unchecked


async def test_two_sweepers_at_once_beside_running_batches_break_nothing(service: Service) -> None:
    done = await service.submit(line(f"d{n}") for n in range(200))
    await service.until(done)
    running = await service.submit(line(f"r{n}") for n in range(2000))

    for _ in range(3):
        # Days later as far as ages go: whatever is old enough but still needed must stay.
        sweepers = [sweeper(service, keep_seconds=0.0, days_later=3) for _ in range(2)]
        await asyncio.gather(*(sweep for one in sweepers for sweep in every_sweep(one)))

    for batch, lines in ((done, 200), (running, 2000)):
        await service.until(batch)
        assert len(await service.results(batch)) == lines
        await service.audit(batch)


async def test_checkpoints_go_with_the_end_of_their_batch_and_not_before(service: Service) -> None:
    service.worker_stops[0].set()
    await service.workers[0]
    slow = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.02), max_num_seqs=4)
    service.add_worker(SimulatedEngine(slow), slots=4, checkpoint_seconds=0.1)
    batch = await service.submit(line(f"r{n}") for n in range(24))
    async with asyncio.timeout(30):
        while not await segments(service):
            await asyncio.sleep(0.02)
    assert not await sweeper(service).sweep_segments_once()

    await service.until(batch)

    kept = await segments(service)
    assert kept
    assert await sweeper(service).sweep_segments_once()
    assert not await sweeper(service).sweep_segments_once()
    assert await segments(service) == []
    for key in kept:
        with pytest.raises(ObjectMissing):
            await service.store.get(key)
    await service.audit(batch)


async def segments(service: Service) -> list[str]:
    """The objects of all checkpoints that rows point at."""
    rows = await service.db.fetch("test", "SELECT object_key FROM chunk_segments", {})
    return [row.object_key for row in rows]
