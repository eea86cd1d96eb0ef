"""What an operator meets: an engine that dies, a database that is cut off or small, and the gauges of the queue."""

import asyncio
from pathlib import Path

import psycopg
import pytest

from slackwater.db.catalog import add_model
from slackwater.db.session import PoolSettings
from slackwater.domain.cutting import CutRules
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.flow.gauges import show_queue
from slackwater.flow.work_engine import WatchSettings
from slackwater.inference.simulated import Latency, SimulatedEngine
from tests.cases.databases import cut_connections, fresh_database
from tests.cases.inputs import MODEL, questions
from tests.cases.marks import case
from tests.cases.site import Site, own_site, running_site, simulated

pytestmark = pytest.mark.asyncio(loop_scope="module")


@case("W06")
async def test_a_job_goes_on_with_the_engines_that_are_left(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    engines = [simulated(latency=Latency(decode_seconds_per_token=0.01), max_num_seqs=4) for _ in range(4)]
    worker = {"slots": 4, "engine": WatchSettings(outage_seconds=0.2, check_seconds=0.2)}
    async with own_site(postgres_server, tmp_path, engines=engines, worker=worker) as site:
        batch = await site.acme.create(await site.acme.upload(questions(240)))
        await site.acme.progress(batch["id"], 100)
        assert isinstance(engines[0].inner, SimulatedEngine)
        engines[0].inner.crash()

        ended = await site.acme.ended(batch["id"])

        assert (ended.status, ended.counts) == ("completed", (240, 240, 0))
        assert all(len(engine.finished) > 20 for engine in engines[1:])


@case("W10")
async def test_an_engine_that_stands_still_and_says_that_it_is_well_is_taken_out_and_its_lines_move(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    frozen, lively = engines = [
        simulated(latency=Latency(decode_seconds_per_token=0.01), max_num_seqs=4) for _ in range(2)
    ]
    watch = WatchSettings(outage_seconds=0.2, stall_seconds=1.0, check_seconds=0.2)
    worker = {"slots": 4, "engine": watch}
    async with own_site(postgres_server, tmp_path, engines=engines, worker=worker) as site:
        batch = await site.acme.create(await site.acme.upload(questions(100)))
        async with asyncio.timeout(30):
            while len(frozen.finished) < 8:
                await asyncio.sleep(0.01)
        assert isinstance(frozen.inner, SimulatedEngine)
        frozen.inner.sicken("never_answers")
        said = await frozen.ready()

        ended = await site.acme.ended(batch["id"])

        assert said
        assert (ended.status, ended.counts) == ("completed", (100, 100, 0))
        moved = {sent.body for sent in frozen.sent} - set(frozen.finished)
        assert {body for body in moved if b"question" in body} <= set(lively.finished)


@case("O01", "O03")
async def test_the_demand_for_a_model_is_right_without_a_worker_and_zero_once_it_is_met(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path, engines=[]) as site:
        await add_model(site.db, model_id=MODEL, actor="test")
        batch = await site.acme.create(await site.acme.upload(questions(40)))
        await site.acme.until(batch["id"], "in_progress")
        queued = await gauges(site)
        engine = simulated(latency=Latency(decode_seconds_per_token=0.01), max_num_seqs=4)
        site.service.add_worker(engine, slots=4)
        async with asyncio.timeout(30):
            while len(engine.finished) < 8:
                await asyncio.sleep(0.01)
        during = await gauges(site)
        lost = site.service.workers.pop()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        site.service.add_worker(engine, name="worker-1", slots=4)
        await site.acme.ended(batch["id"])
        idle = await gauges(site)

        waiting = ("slackwater_lines_waiting", MODEL)
        assert queued[waiting] == 40
        assert 0 < during[waiting] <= 40
        assert min((*queued.values(), *during.values(), *idle.values())) >= 0
        assert {name: value for name, value in idle.items() if name[0] != "slackwater_model_workers" and value} == {
            ("slackwater_workers", "live"): 1
        }


async def gauges(site: Site) -> dict[tuple[str, str], float]:
    """The queue's gauges of models and states, as the next scrape would have them."""
    await show_queue(site.db, site.metrics)
    names = ("lines_waiting", "batches", "chunks", "workers", "model_workers")
    return {
        (sample.name, next(iter(sample.labels.values()))): sample.value
        for family in site.metrics.registry.collect()
        for sample in family.samples
        if sample.name in {f"slackwater_{name}" for name in names}
    }


@case("D07")
async def test_no_transaction_is_open_while_lines_run(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    with fresh_database(postgres_server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
            connection.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '500ms'".encode())
        engine = simulated(latency=Latency(decode_seconds_per_token=0.3))
        async with running_site(url, tmp_path, engines=[engine]) as site:
            ended = await site.acme.run(questions(8))

            assert (ended.status, ended.counts) == ("completed", (8, 8, 0))
            assert (site.server_errors(), site.stage_errors()) == ({}, {})


@case("D14")
async def test_the_smallest_pool_lets_every_chunk_end(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    pool = PoolSettings(hot=1, other=1)
    async with own_site(postgres_server, tmp_path, pool=pool, cut=CutRules(min_requests=1)) as site:
        ended = await site.acme.run(questions(50))

        assert (ended.status, ended.counts) == ("completed", (50, 50, 0))


@case("D08")
async def test_connections_cut_in_the_middle_of_a_batch_lose_and_double_nothing(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = simulated(latency=Latency(decode_seconds_per_token=0.01), max_num_seqs=4)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 4}) as site:
        (row,) = await site.rows("SELECT current_database() AS name")

        batch = await site.acme.create(await site.acme.upload(questions(150)))
        for finished in (10, 40, 80):
            async with asyncio.timeout(60):
                while len(engine.finished) < finished:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(cut_connections, postgres_server, row.name)
        async with asyncio.timeout(60):
            # What a customer asks for in that moment may be a 503.
            while (await site.acme.http.get(f"/v1/batches/{batch['id']}")).json().get("status") != "completed":
                await asyncio.sleep(0.05)

        ended = await site.acme.ended(batch["id"])
        assert ended.counts == (150, 150, 0)
