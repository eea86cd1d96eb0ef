"""What is finished stays finished: checkpoints of chunks, and who goes on. Real PostgreSQL, simulated engines."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.domain.errors import StoreUnavailable
from slackwater.domain.ids import BatchId
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_answers import OutputLength
from slackwater.inference.simulated_writer import SimulatedModel
from tests.cases.recording import RecordingEngine, WatchedStore
from tests.service import Service, line, running_service

SLOTS = 8
LINES = 120
SLOW = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.04), max_num_seqs=SLOTS)
"""A third of a second a line."""
ONE_CHUNK = CutRules(min_requests=1000)


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, store, database_url, tmp_path, engines=[], cut=ONE_CHUNK) as running:
        yield running


async def kept_lines(db: Database, batch: BatchId) -> int:
    """Lines that are safe in the database: committed or in a segment."""
    statement = """
    SELECT (SELECT coalesce(sum(succeeded + errored), 0) FROM chunks WHERE batch_id = %(batch)s AND state = 'done')
         + (SELECT coalesce(sum(s.succeeded + s.errored), 0) FROM chunk_segments s JOIN chunks c USING (batch_id, seq)
            WHERE s.batch_id = %(batch)s AND c.state <> 'done') AS lines
    """
    rows = await db.fetch("test", statement, {"batch": batch})
    return int(rows[0].lines)


async def segments(db: Database, batch: BatchId) -> list[Any]:
    """The segments of chunks that are not committed."""
    statement = """
    SELECT s.object_key, s.succeeded FROM chunk_segments s JOIN chunks c USING (batch_id, seq)
    WHERE s.batch_id = %(batch)s AND c.state <> 'done' ORDER BY s.seq, s.segment_no
    """
    return await db.fetch("test", statement, {"batch": batch})


async def until_kept(db: Database, batch: BatchId, lines: int) -> None:
    """Wait until so many lines are in segments of chunks that still run."""
    async with asyncio.timeout(30):
        while sum(segment.succeeded for segment in await segments(db, batch)) < lines:
            await asyncio.sleep(0.02)


async def kill(service: Service, at: int = 0) -> None:
    """End a worker without a word: its leases stand until its heartbeat is too old, here at once."""
    service.workers[at].cancel()
    await asyncio.gather(service.workers[at], return_exceptions=True)
    await service.db.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 hour'", {})


async def submit(service: Service, **options: Any) -> BatchId:
    return await service.submit((line(f"r{n}", f"question {n}") for n in range(LINES)), **options)


async def test_whoever_takes_over_a_dead_workers_chunk_runs_only_the_rest(service: Service) -> None:
    service.add_worker(SimulatedEngine(SLOW), slots=SLOTS, checkpoint_seconds=0.2)
    batch = await submit(service)
    await until_kept(service.db, batch, 2 * SLOTS)
    await kill(service)
    kept = await kept_lines(service.db, batch)
    second = SimulatedEngine()

    service.add_worker(second, checkpoint_seconds=0.2)

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == ("completed", LINES)
    assert second.answered == LINES - kept
    assert len(await service.results(batch)) == LINES
    report = await service.audit(batch)
    assert report.lines == LINES


async def test_a_lost_worker_costs_at_most_one_checkpoint_interval_of_each_slot(service: Service) -> None:
    interval_seconds, line_seconds = 1.0, 0.25
    steady = SimulatedSettings(
        model=SimulatedModel(length=OutputLength(median_tokens=5, sigma=0.0)),
        latency=Latency(decode_seconds_per_token=line_seconds / 5),
        max_num_seqs=SLOTS,
    )
    first, second = (RecordingEngine(SimulatedEngine(steady)) for _ in range(2))
    service.add_worker(first, slots=SLOTS, checkpoint_seconds=interval_seconds)
    batch = await submit(service)
    async with asyncio.timeout(60):
        # Ten rounds of the slots: two checkpoints were due, and the third soon is.
        while len(first.finished) < 10 * SLOTS:
            await asyncio.sleep(0.01)
    await kill(service)
    finished = set(first.finished)

    service.add_worker(second, slots=SLOTS, checkpoint_seconds=interval_seconds)

    assert (await service.until(batch)).succeeded == LINES
    again = sum(one.body in finished for one in second.sent)
    assert len({one.body for one in (*first.sent, *second.sent)}) == LINES
    # What ended in the interval, with half of another for writing what the last one kept.
    assert again <= SLOTS * 1.5 * interval_seconds / line_seconds
    await service.audit(batch)


async def test_a_chunk_that_loses_every_worker_still_ends(service: Service) -> None:
    batch = await submit(service)
    for died in range(4):
        service.add_worker(SimulatedEngine(SLOW), slots=SLOTS, checkpoint_seconds=0.1)
        before = await kept_lines(service.db, batch)
        async with asyncio.timeout(30):
            while await kept_lines(service.db, batch) < min(LINES, before + SLOTS):
                await asyncio.sleep(0.02)
        await kill(service, died)

    service.add_worker(SimulatedEngine())

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES, 0)
    await service.audit(batch)


async def test_a_worker_told_to_stop_hands_over_what_it_finished(service: Service) -> None:
    first = RecordingEngine(SimulatedEngine(SLOW))
    service.add_worker(first, slots=SLOTS)
    batch = await submit(service)
    async with asyncio.timeout(30):
        while len(first.finished) < 2 * SLOTS:
            await asyncio.sleep(0.02)

    service.worker_stops[0].set()
    async with asyncio.timeout(5):
        await service.workers[0]

    assert len(first.sent) == len(first.finished) == await kept_lines(service.db, batch)
    second = SimulatedEngine()
    service.add_worker(second)
    await service.until(batch)
    assert second.answered == LINES - len(first.finished)
    await service.audit(batch)


async def test_a_worker_whose_grace_is_over_aborts_what_is_left_and_hands_the_rest_over(service: Service) -> None:
    first = RecordingEngine(SimulatedEngine(SLOW))
    service.add_worker(first, slots=SLOTS, drain_seconds=0.0)
    batch = await submit(service)
    async with asyncio.timeout(30):
        while len(first.finished) < SLOTS:
            await asyncio.sleep(0.02)

    service.worker_stops[0].set()
    async with asyncio.timeout(5):
        await service.workers[0]

    assert len(first.finished) == await kept_lines(service.db, batch) < len(first.sent)
    service.add_worker(SimulatedEngine())
    assert (await service.until(batch)).succeeded == LINES
    await service.audit(batch)


@pytest.mark.parametrize("fate", ["gone", "damaged"])
async def test_a_segment_that_is_not_what_was_written_runs_again(service: Service, fate: str) -> None:
    service.add_worker(SimulatedEngine(SLOW), slots=SLOTS, checkpoint_seconds=0.2)
    batch = await submit(service)
    await until_kept(service.db, batch, 2 * SLOTS)
    await kill(service)
    kept = await kept_lines(service.db, batch)
    first, *_ = await segments(service.db, batch)
    if fate == "gone":
        await service.store.delete([first.object_key], stage="test")
    else:
        data = await service.store.get(first.object_key)
        await service.store.put(first.object_key, data[:-3] + b"X" + data[-2:], stage="test")
    second = SimulatedEngine()

    service.add_worker(second)

    assert (await service.until(batch)).succeeded == LINES
    assert second.answered == LINES - kept + first.succeeded
    await service.audit(batch)


async def test_a_store_that_is_away_for_a_while_loses_no_checkpointed_line(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    watched = WatchedStore(store)
    failures = 0

    async def fail() -> None:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise StoreUnavailable("the store is away")

    async with running_service(db, watched, database_url, tmp_path, engines=[], cut=ONE_CHUNK) as service:
        watched.before["work.segment"] = fail
        service.add_worker(SimulatedEngine(SLOW), slots=SLOTS, checkpoint_seconds=0.2)
        batch = await submit(service)
        await until_kept(db, batch, 2 * SLOTS)
        await kill(service)
        service.add_worker(SimulatedEngine())

        assert (await service.until(batch)).succeeded == LINES
        assert failures >= 4
        await service.audit(batch)


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_a_stopped_batch_keeps_what_a_dead_worker_had_finished(service: Service, ending: str) -> None:
    service.add_worker(SimulatedEngine(SLOW), slots=SLOTS, checkpoint_seconds=0.2)
    batch = await submit(service, window=timedelta(hours=1))
    await until_kept(service.db, batch, 2 * SLOTS)
    await kill(service)
    kept = await kept_lines(service.db, batch)

    if ending == "cancelled":
        await service.cancel(batch)
    else:
        await service.db.fetch("test", "UPDATE batches SET deadline = now()", {})

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == (ending, kept)
    assert ended.cancelled + ended.expired == LINES - kept
    results = await service.results(batch)
    codes = [(one["error"] or {}).get("code") for one in results.values()]
    assert codes.count(f"batch_{ending}") == LINES - kept
    await service.audit(batch)


async def test_a_late_checkpoint_of_a_lost_lease_keeps_nothing(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    watched = WatchedStore(store)
    written, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        written.set()
        await go_on.wait()

    async with running_service(db, watched, database_url, tmp_path, engines=[], cut=ONE_CHUNK) as service:
        service.add_worker(SimulatedEngine(SLOW), slots=SLOTS, checkpoint_seconds=0.3)
        watched.after["work.segment"] = wait
        batch = await submit(service)
        await asyncio.wait_for(written.wait(), 30)
        # Its lease passes to another, which finishes the batch; then the late one writes its row.
        await db.fetch(
            "test", "UPDATE chunks SET state = 'pending', token = NULL, worker_id = NULL WHERE state = 'leased'", {}
        )
        del watched.after["work.segment"]
        service.add_worker(SimulatedEngine())
        ended = await service.until(batch)
        go_on.set()
        await asyncio.sleep(0.5)

        assert ended.succeeded == LINES
        assert len(await service.results(batch)) == LINES
        await service.audit(batch)
