"""Many lines, many batches, many workers: nobody starves, nothing stalls, nothing locks up."""

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from slackwater.domain.outcomes import RetryPolicy
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.inference.simulated import Latency, SimulatedEngine
from tests.cases.customer import Customer
from tests.cases.marks import case
from tests.cases.site import Site, own_site, simulated
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")


def requests(count: int, **body: Any) -> bytes:
    return jsonl(line(f"r{n}", f"question {n}", **body) for n in range(count))


async def wait_until(site: Site, statement: str) -> None:
    """Wait until a condition holds in the database."""
    async with asyncio.timeout(60):
        while not (await site.rows(f"SELECT {statement} AS holds"))[0].holds:
            await asyncio.sleep(0.02)


@case("N02")
async def test_a_huge_line_at_the_head_holds_nobody_back(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    # A prompt of 80,000 bytes costs two seconds of prefill here, the others next to nothing.
    engine = simulated(latency=Latency(prefill_seconds_per_token=0.0001), max_num_seqs=2)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 2}) as site:
        huge = line("huge", "x" * 80_000)
        lines = [line("r0"), huge, *(line(f"r{n}", f"question {n}") for n in range(1, 30))]
        batch = await site.acme.create(await site.acme.upload(jsonl(lines)))
        small = await site.globex.create(await site.globex.upload(requests(5)))

        others = await site.globex.ended(small["id"])
        ended = await site.acme.ended(batch["id"])

        assert (others.status, ended.counts) == ("completed", (31, 31, 0))
        order = [len(body) > 80_000 for body in engine.finished]
        assert order.index(True) >= 30
        assert sum(order) == 1


@case("N03")
async def test_a_small_batch_of_another_tenant_does_not_wait_for_a_large_one(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    # 5,000 lines of 32 ms on 16 slots: ten seconds of work.
    engine = simulated(latency=Latency(decode_seconds_per_token=0.004), max_num_seqs=16)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 16}) as site:
        large = await site.acme.create(await site.acme.upload(requests(5000)))
        await wait_until(site, "EXISTS (SELECT FROM batches WHERE succeeded > 0)")

        began = time.perf_counter()
        small = await site.globex.run(requests(5))
        seconds = time.perf_counter() - began

        meanwhile = await site.acme.get(large["id"])
        assert small.counts == (5, 5, 0)
        assert meanwhile["status"] == "in_progress"
        assert meanwhile["request_counts"]["completed"] < 4000
        assert seconds < 5
        # Enough is shown: the large one ends here.
        await site.acme.cancel(large["id"])
        assert (await site.acme.ended(large["id"])).status == "cancelled"


@case("N04")
async def test_four_workers_share_one_batch_evenly_and_are_faster_than_one(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    seconds_per_line, slots, count = 8 * 0.015, 4, 320
    engines = [simulated(latency=Latency(decode_seconds_per_token=0.015), max_num_seqs=slots) for _ in range(4)]
    async with own_site(postgres_server, tmp_path, engines=engines, worker={"slots": slots}) as site:
        while len(await site.rows("SELECT id FROM workers")) < len(engines):
            await asyncio.sleep(0.02)

        ended = await site.acme.run(requests(count))

        (row,) = await site.rows("SELECT finalizing_at - in_progress_at AS took FROM batches")
        shares = [len(engine.finished) for engine in engines]
        best_of_one = count / slots * seconds_per_line
        assert ended.counts == (count, count, 0)
        assert min(shares) >= count / 4 * 0.6, shares
        assert row.took.total_seconds() < best_of_one / 2


@case("N06", "W14")
async def test_an_answer_without_an_end_costs_its_own_line_only_and_frees_the_slot(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = simulated(max_num_seqs=2)
    worker = {"slots": 2, "request_timeout_seconds": 0.5, "retries": RetryPolicy(max_attempts=2)}
    async with own_site(postgres_server, tmp_path, engines=[engine], worker=worker) as site:
        lines = [line("r0"), line("endless", "~fault:never_answers~"), *(line(f"r{n}", f"{n}") for n in range(1, 30))]

        ended = await site.acme.run(jsonl(lines))

        assert (ended.status, ended.counts) == ("completed", (31, 30, 1))
        endless = ended.refused["endless"]
        assert (endless["response"], endless["error"]["code"]) == (None, "request_timeout")
        assert endless["error"]["message"]
        assert isinstance(engine.inner, SimulatedEngine)
        assert (engine.inner.slots.running, engine.inner.slots.waiting) == (0, 0)


@case("N09")
async def test_workers_that_commit_while_batches_and_files_go_away_never_deadlock(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engines = [simulated(latency=Latency(decode_seconds_per_token=0.001)) for _ in range(8)]
    async with own_site(postgres_server, tmp_path, engines=engines) as site:

        async def live_and_die(customer: Customer, n: int) -> str:
            batch = await customer.create(await customer.upload(requests(96)))
            if n % 3 == 0:
                await customer.until(batch["id"], "in_progress", "finalizing", "completed")
                await customer.cancel(batch["id"])
            ended = await customer.ended(batch["id"])
            for name in ("input_file_id", "output_file_id", "error_file_id"):
                if ended.batch[name] is not None:
                    await customer.http.delete(f"/v1/files/{ended.batch[name]}")
            return ended.status

        async with asyncio.TaskGroup() as group:
            lives = [
                group.create_task(live_and_die(customer, n))
                for n, customer in zip(range(16), itertools.cycle((site.acme, site.globex)), strict=False)
            ]

        statuses = {life.result() for life in lives}
        assert statuses <= {"completed", "cancelled"}
        await site.rows("SELECT pg_stat_force_next_flush()")
        (stats,) = await site.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert stats.deadlocks == 0
        assert (site.server_errors(), site.stage_errors()) == ({}, {})
