"""The statements of the queue one by one: claims, leases, fences, counts. Real PostgreSQL."""

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from slackwater.blobs.protocol import BlobStore
from slackwater.db.accounts import create_tenant
from slackwater.db.catalog import add_model
from slackwater.db.election import ElectionLock
from slackwater.db.queue.finishing import (
    claim_finishing,
    committed_parts,
    expire_batches,
    finish_batch,
    revoke_leases,
    unrun_chunks,
)
from slackwater.db.queue.leases import (
    ChunkResult,
    Lease,
    Report,
    commit_chunk,
    elect,
    lease_chunks,
    openings,
    reap_leases,
    register_worker,
    release_chunk,
    runnable,
    sync,
    was_committed,
)
from slackwater.db.queue.planning import claim_planning, known_models, publish_plan, renew_claim
from slackwater.db.queue.results import ResultObject
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId, WorkerId, tenant_id
from slackwater.domain.policy import Grant
from slackwater.domain.usage import NO_USAGE, Usage
from slackwater.metrics import create_metrics
from tests.service import MODEL, Service, line, new_uuid, plan_evenly

WORKER = WorkerId("w")
INCARNATION = uuid.UUID(int=7)
REPORT = Report(
    worker_id=WORKER,
    incarnation=INCARNATION,
    target_lines=1000,
    in_flight=0,
    engine_ready=True,
    lines_per_second=None,
)


@pytest.fixture
async def scene(db: Database, store: BlobStore) -> Service:
    """A tenant, a known model, a registered worker, and no loop that runs."""
    tenant = tenant_id(new_uuid())
    await create_tenant(db, tenant_id=tenant, name="t", actor="test")
    await add_model(db, model_id=MODEL, actor="test")
    await register_worker(db, worker_id=WORKER, incarnation=INCARNATION, models=[MODEL], slots=8)
    await sync(db, REPORT)
    metrics = create_metrics(CollectorRegistry(), version="test", clock=lambda: 0.0)
    return Service(db=db, store=store, metrics=metrics, tenant=tenant, stop=asyncio.Event())


async def planned(scene: Service, lines: int = 4, chunk_lines: int = 2, **submit: object) -> BatchId:
    batch = await scene.submit((line(f"r{n}") for n in range(lines)), **submit)  # type: ignore[arg-type]
    assert await plan_evenly(scene.db, scene.store, chunk_lines=chunk_lines)
    return batch


async def leased(scene: Service, term: int) -> list[Lease]:
    """Lease all that waits to the one worker."""
    (batch,) = await runnable(scene.db, [MODEL], head=64)
    grants = [Grant(batch_id=batch.batch_id, seq=seq, worker_id=WORKER, incarnation=INCARNATION) for seq in batch.seqs]
    await lease_chunks(scene.db, term, grants)
    orders = await sync(scene.db, REPORT)
    assert orders is not None
    return list(orders.leases)


def done(lease: Lease, usage: Usage = NO_USAGE) -> ChunkResult:
    output = ResultObject(key=f"parts/{lease.seq}.out", size_bytes=1, sha256="0" * 64)
    return ChunkResult(
        succeeded=lease.n_requests, errored=0, cancelled=0, expired=0, usage=usage, output=output, errors=None
    )


async def test_a_batch_is_planned_by_one_planner_at_a_time(scene: Service) -> None:
    await scene.submit([line("a")])
    first = await claim_planning(scene.db)
    assert first is not None
    assert await claim_planning(scene.db) is None


async def test_a_claim_that_lapses_passes_on_and_refuses_its_first_holder(scene: Service) -> None:
    await scene.submit([line("a")])
    first = await claim_planning(scene.db, claim_seconds=0.0)
    second = await claim_planning(scene.db)
    assert first is not None
    assert second is not None
    assert second.claims == 2
    assert not await renew_claim(scene.db, first.batch_id, first.claim_token)
    nothing = await publish_plan(scene.db, first, model=MODEL, plan_key=None, index_key=None, chunks=[], refused=None)
    assert not nothing
    assert (await scene.get(first.batch_id)).status == "validating"


async def test_a_batch_cancelled_while_it_is_planned_stays_cancelled(scene: Service) -> None:
    batch = await scene.submit([line("a")])
    claim = await claim_planning(scene.db)
    assert claim is not None
    await scene.cancel(batch)
    assert await plan_evenly(scene.db, scene.store, chunk_lines=1, claim=claim)
    assert (await scene.get(batch)).status == "cancelled"


async def test_an_alias_is_a_known_model(scene: Service) -> None:
    known = await known_models(scene.db)
    assert (known[MODEL].id, known[MODEL].live_workers) == (MODEL, 1)


async def test_a_lost_lease_cannot_commit(scene: Service) -> None:
    batch = await planned(scene)
    (lease, _) = await leased(scene, await elect(scene.db, "test"))
    stale = replace(lease, token=uuid.uuid4())  # type: ignore[arg-type]
    assert not await commit_chunk(scene.db, stale, done(lease))
    assert not await was_committed(scene.db, stale)
    assert (await scene.get(batch)).succeeded == 0
    assert await commit_chunk(scene.db, lease, done(lease, Usage(3, 0, 5, 0)))
    found = await scene.get(batch)
    assert (found.succeeded, found.input_tokens, found.output_tokens) == (2, 3, 5)


async def test_a_commit_counts_once_however_often_it_is_sent(scene: Service) -> None:
    batch = await planned(scene)
    (lease, _) = await leased(scene, await elect(scene.db, "test"))
    assert await commit_chunk(scene.db, lease, done(lease))
    assert not await commit_chunk(scene.db, lease, done(lease))
    # Whoever lost the first answer learns so that it stood.
    assert await was_committed(scene.db, lease)
    assert (await scene.get(batch)).succeeded == 2


async def test_the_last_commit_moves_the_batch_to_finalizing(scene: Service) -> None:
    batch = await planned(scene)
    first, second = await leased(scene, await elect(scene.db, "test"))
    await commit_chunk(scene.db, second, done(second))
    assert (await scene.get(batch)).status == "in_progress"
    await commit_chunk(scene.db, first, done(first))
    assert (await scene.get(batch)).status == "finalizing"
    parts = await committed_parts(scene.db, batch)
    assert [part.output and part.output.key for part in parts] == ["parts/1.out", "parts/0.out"]


async def test_an_older_terms_leases_are_refused(scene: Service) -> None:
    await planned(scene)
    old = await elect(scene.db, "old")
    new = await elect(scene.db, "new")
    assert new == old + 1
    assert await leased(scene, old) == []
    assert len(await leased(scene, new)) == 2


async def test_a_chunk_is_leased_once(scene: Service) -> None:
    await planned(scene)
    term = await elect(scene.db, "test")
    (waiting,) = await runnable(scene.db, [MODEL], head=64)
    grants = [Grant(batch_id=waiting.batch_id, seq=0, worker_id=WORKER, incarnation=INCARNATION)]
    assert await lease_chunks(scene.db, term, grants) == 1
    assert await lease_chunks(scene.db, term, grants) == 0


async def test_leases_of_another_incarnation_are_dead(scene: Service) -> None:
    await planned(scene)
    (lease, _) = await leased(scene, await elect(scene.db, "test"))
    assert await reap_leases(scene.db) == 0
    await register_worker(scene.db, worker_id=WORKER, incarnation=uuid.UUID(int=8), models=[MODEL], slots=8)
    assert await sync(scene.db, REPORT) is None
    assert await reap_leases(scene.db) == 2
    assert not await commit_chunk(scene.db, lease, done(lease))


async def test_leases_of_a_silent_worker_are_dead(scene: Service) -> None:
    await planned(scene)
    (lease, _) = await leased(scene, await elect(scene.db, "test"))
    async with scene.db.transaction("test") as connection:
        await connection.exec_driver_sql("UPDATE workers SET heartbeat_at = now() - interval '31 s'")
    assert await reap_leases(scene.db) == 2
    assert await openings(scene.db) == []
    assert not await commit_chunk(scene.db, lease, done(lease))


async def test_a_lease_given_back_costs_no_attempt(scene: Service) -> None:
    await planned(scene, lines=1, chunk_lines=1)
    term = await elect(scene.db, "test")
    (lease,) = await leased(scene, term)
    assert lease.attempts == 1
    assert await release_chunk(scene.db, lease)
    assert not await release_chunk(scene.db, lease)
    (again,) = await leased(scene, term)
    assert (again.attempts, again.token != lease.token) == (1, True)


async def test_a_cancelled_batch_tells_its_workers(scene: Service) -> None:
    batch = await planned(scene)
    await leased(scene, await elect(scene.db, "test"))
    await scene.cancel(batch)
    orders = await sync(scene.db, REPORT)
    assert orders is not None
    assert [lease.stopped for lease in orders.leases] == ["cancelled", "cancelled"]


async def test_a_stopped_batch_waits_for_its_workers_only_so_long(scene: Service) -> None:
    batch = await planned(scene)
    (lease, _) = await leased(scene, await elect(scene.db, "test"))
    await scene.cancel(batch)
    assert await claim_finishing(scene.db, grace_seconds=60.0) is None
    claim = await claim_finishing(scene.db, grace_seconds=0.0)
    assert claim is not None
    assert await revoke_leases(scene.db, batch) == 2
    assert not await commit_chunk(scene.db, lease, done(lease))
    assert [chunk.first_number for chunk in await unrun_chunks(scene.db, batch)] == [0, 2]
    assert await finish_batch(scene.db, claim, output=None, errors=None, unrun=4)
    assert not await finish_batch(scene.db, claim, output=None, errors=None, unrun=4)
    found = await scene.get(batch)
    assert (found.status, found.cancelled) == ("cancelled", 4)


async def test_a_batch_is_not_leased_after_its_cancel(scene: Service) -> None:
    batch = await planned(scene)
    term = await elect(scene.db, "test")
    (waiting,) = await runnable(scene.db, [MODEL], head=64)
    await scene.cancel(batch)
    grants = [Grant(batch_id=waiting.batch_id, seq=0, worker_id=WORKER, incarnation=INCARNATION)]
    assert await lease_chunks(scene.db, term, grants) == 0
    assert await runnable(scene.db, [MODEL], head=64) == []


async def test_a_worker_with_all_it_wants_has_only_its_express_slot(scene: Service) -> None:
    await planned(scene, lines=60, chunk_lines=30)
    await leased(scene, await elect(scene.db, "test"))
    await sync(scene.db, replace(REPORT, target_lines=60))
    (opening,) = await openings(scene.db)
    assert (opening.free_lines, opening.express) == (0, True)


async def test_one_process_holds_the_election(database_url: str) -> None:
    first, second = ElectionLock(database_url), ElectionLock(database_url)
    assert await first.try_hold()
    assert await first.try_hold()
    assert not await second.try_hold()
    await first.close()
    # The server lets go of the lock when it has noticed that its client is gone, a moment later.
    async with asyncio.timeout(10):
        while not await second.try_hold():
            await asyncio.sleep(0.01)
    await second.close()


async def test_a_deadline_that_passed_stops_a_batch(scene: Service) -> None:
    batch = await planned(scene, window=timedelta(seconds=0))
    assert await expire_batches(scene.db) == 1
    assert await expire_batches(scene.db) == 0
    assert (await scene.get(batch)).status == "finalizing"
