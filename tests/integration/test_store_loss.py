"""What is lost or changed in the store costs what it hit and no more. Real PostgreSQL, a local and a faulty store."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.domain.errors import StoreFull
from slackwater.domain.ids import BatchId
from slackwater.inference.simulated import SimulatedEngine
from tests.faulty_store import Fault, FaultyStore, first
from tests.service import Service, line, running_service

LINES = 90
THREE_CHUNKS = CutRules(min_requests=30, max_requests=30, least_chunks=1, tail_share=0.0)


@pytest.fixture
def faulty(store: BlobStore) -> FaultyStore:
    return FaultyStore(store)


@pytest.fixture
async def service(db: Database, faulty: FaultyStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(db, faulty, database_url, tmp_path, engines=[], cut=THREE_CHUNKS) as running:
        yield running


async def submit(service: Service, **options: Any) -> BatchId:
    return await service.submit((line(f"r{n}", f"question {n}") for n in range(LINES)), **options)


async def source_of(service: Service, batch: BatchId) -> tuple[str, list[Any]]:
    """The object that a planned batch's lines are read from, and its chunks."""
    await service.until(batch, "in_progress")
    statement = """
    SELECT coalesce(b.plan_key, b.input_key) AS key, c.byte_start, c.byte_length, c.n_requests
    FROM batches b JOIN chunks c ON c.batch_id = b.id WHERE b.id = %(id)s ORDER BY c.seq
    """
    rows = await service.db.fetch("test", statement, {"id": batch})
    return rows[0].key, rows


async def damage(store: BlobStore, key: str, at: int) -> None:
    """Change one byte of an object in place."""
    data = bytearray(await store.get(key))
    data[at] ^= 1
    await store.put(key, bytes(data), stage="test")


async def parts_of(service: Service, batch: BatchId) -> list[Any]:
    statement = "SELECT seq, out_key, err_key, losses FROM chunks WHERE batch_id = %(id)s ORDER BY seq"
    return await service.db.fetch("test", statement, {"id": batch})


def codes(results: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many lines ended with each error code; "" counts those with an answer."""
    found: dict[str, int] = {}
    for one in results.values():
        code = "" if one["error"] is None else one["error"]["code"]
        found[code] = found.get(code, 0) + 1
    return found


async def test_lines_that_changed_in_the_store_end_as_lost_and_all_others_succeed(service: Service) -> None:
    batch = await submit(service)
    key, chunks = await source_of(service, batch)
    assert len(chunks) == 3
    await damage(service.store, key, chunks[1].byte_start + 200)

    service.add_worker(SimulatedEngine())

    ended = await service.until(batch)
    lost = chunks[1].n_requests
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES - lost, lost)
    results = await service.results(batch)
    assert set(results) == {f"r{n}" for n in range(LINES)}
    assert codes(results) == {"": LINES - lost, "input_lost": lost}
    await service.audit(batch)


async def test_a_source_that_vanished_while_its_batch_ran_ends_what_did_not_run(service: Service) -> None:
    batch = await submit(service)
    key, _ = await source_of(service, batch)
    await service.store.delete([key], stage="test")

    service.add_worker(SimulatedEngine())

    ended = await service.until(batch)
    assert (ended.status, ended.succeeded, ended.errored) == ("completed", 0, LINES)
    results = await service.results(batch)
    assert set(results) == {f"r{n}" for n in range(LINES)}
    assert codes(results) == {"input_lost": LINES}
    await service.audit(batch)


async def test_a_cancelled_batch_names_its_lines_even_when_their_source_is_gone(service: Service) -> None:
    batch = await submit(service)
    key, _ = await source_of(service, batch)
    await service.store.delete([key], stage="test")

    await service.cancel(batch)

    assert (await service.until(batch)).status == "cancelled"
    results = await service.results(batch)
    assert set(results) == {f"r{n}" for n in range(LINES)}
    assert codes(results) == {"batch_cancelled": LINES}
    await service.audit(batch)


@pytest.mark.parametrize("fate", ["gone", "changed"])
async def test_a_batch_whose_input_is_lost_before_it_is_planned_fails_and_costs_nothing(
    service: Service, fate: str
) -> None:
    service.held.add("plan")
    batch = await submit(service)
    key = keys.input_key((await service.get(batch)).input_file_id)
    if fate == "gone":
        await service.store.delete([key], stage="test")
    else:
        await damage(service.store, key, 100)
    service.held.clear()

    ended = await service.until(batch)

    assert ended.status == "failed"
    assert ended.errors is not None
    assert [error["code"] for error in ended.errors] == ["input_unavailable" if fate == "gone" else "input_damaged"]
    await service.audit(batch)


@pytest.mark.parametrize("fate", ["gone", "changed"])
async def test_a_result_part_that_is_lost_runs_again_while_there_is_time(service: Service, fate: str) -> None:
    service.held.add("finish")
    engine = SimulatedEngine()
    service.add_worker(engine)
    batch = await submit(service)
    await service.until(batch, "finalizing")
    before = await service.get(batch)
    _, lost, _ = await parts_of(service, batch)
    if fate == "gone":
        await service.store.delete([lost.out_key], stage="test")
    else:
        await damage(service.store, lost.out_key, 50)
    service.held.clear()

    ended = await service.until(batch)

    assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES, 0)
    assert (ended.input_tokens, ended.output_tokens) == (before.input_tokens, before.output_tokens)
    assert engine.answered == LINES + 30
    assert [part.losses for part in await parts_of(service, batch)] == [0, 1, 0]
    assert set(await service.results(batch)) == {f"r{n}" for n in range(LINES)}
    await service.audit(batch)


@pytest.mark.parametrize("late", ["window over", "lost too often"])
async def test_a_result_part_that_cannot_run_again_ends_as_lost_and_costs_nothing(service: Service, late: str) -> None:
    service.held.add("finish")
    service.add_worker(SimulatedEngine())
    batch = await submit(service, window=timedelta(hours=1))
    await service.until(batch, "finalizing")
    before = await service.get(batch)
    _, lost, _ = await parts_of(service, batch)
    late_statement = {
        "window over": "UPDATE batches SET deadline = now() - interval '1 second' WHERE id = %(id)s",
        "lost too often": "UPDATE chunks SET losses = 2 WHERE batch_id = %(id)s",
    }[late]
    await service.db.fetch("test", late_statement, {"id": batch})
    await service.store.delete([lost.out_key], stage="test")
    service.held.clear()

    ended = await service.until(batch)

    assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES - 30, 30)
    assert 0 < ended.output_tokens < before.output_tokens
    results = await service.results(batch)
    assert set(results) == {f"r{n}" for n in range(LINES)}
    assert codes(results) == {"": LINES - 30, "result_lost": 30}
    await service.audit(batch)


async def test_only_the_lost_half_of_a_chunk_is_replaced(service: Service) -> None:
    """A chunk with outputs and errors loses its errors: the answers stay, and are charged."""
    service.held.add("finish")
    service.add_worker(SimulatedEngine())
    lines = [line(f"r{n}", f"question {n}") for n in range(LINES)]
    for n in range(0, LINES, 3):
        lines[n]["body"]["temperature"] = "hot"
    batch = await service.submit(lines)
    await service.until(batch, "finalizing")
    before = await service.get(batch)
    assert before.errored == 30
    (_, lost, _) = await parts_of(service, batch)
    await service.db.fetch("test", "UPDATE chunks SET losses = 2 WHERE batch_id = %(id)s", {"id": batch})
    await service.store.delete([lost.err_key], stage="test")
    service.held.clear()

    ended = await service.until(batch)

    assert (ended.succeeded, ended.errored) == (before.succeeded, before.errored)
    assert (ended.input_tokens, ended.output_tokens) == (before.input_tokens, before.output_tokens)
    assert set(await service.results(batch)) == {f"r{n}" for n in range(LINES)}
    await service.audit(batch)


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        ("read", first(1)),
        ("get_range", first(1)),
        ("put", first(3)),
        ("join", first(1)),
        ("finish", first(1)),
        ("write", first(1, StoreFull("The object store is full."))),
    ],
)
async def test_trouble_that_passes_ends_no_batch(service: Service, faulty: FaultyStore, op: str, fault: Fault) -> None:
    batch = await submit(service)
    faulty.faults[op] = fault
    service.add_worker(SimulatedEngine())

    ended = await service.until(batch)

    assert (ended.status, ended.succeeded) == ("completed", LINES)
    assert faulty.failed[op] > 0
    await service.audit(batch)


async def test_slow_and_short_reads_lose_no_line(service: Service, faulty: FaultyStore) -> None:
    batch = await submit(service)
    await service.until(batch, "in_progress")
    faulty.short_ranges = 2
    faulty.delay_seconds = 0.2

    service.add_worker(SimulatedEngine())

    assert (await service.until(batch)).succeeded == LINES
    assert faulty.short_ranges == 0
    await service.audit(batch)
