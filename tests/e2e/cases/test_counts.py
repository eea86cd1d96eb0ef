"""Progress as a customer polls it: true at every moment, and only ever forward."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.inference.simulated import Latency, SimulatedEngine
from slackwater.inference.simulated_faults import FaultPlan
from tests.cases.customer import TERMINAL, Customer
from tests.cases.inputs import read
from tests.cases.marks import case
from tests.cases.site import Site, own_site, simulated
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def watch(customer: Customer, batch_id: str) -> list[dict[str, Any]]:
    """Poll a batch to its end; return every look at it. Fails where the counts are not those of a progress."""
    looks: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while not looks or looks[-1]["status"] not in TERMINAL:
            looks.append(await customer.get(batch_id))
            await asyncio.sleep(0.02)
    counts = [look["request_counts"] for look in looks]
    for one in counts:
        assert min(one.values()) >= 0, one
        assert one["completed"] + one["failed"] <= one["total"], one
    for earlier, later in itertools.pairwise(counts):
        assert all(earlier[name] <= later[name] for name in earlier), (earlier, later)
    return looks


@case("K01")
async def test_failures_are_counted_as_failures_during_the_run_and_after_it(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = simulated(latency=Latency(decode_seconds_per_token=0.005), max_num_seqs=16)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 16}) as site:
        lines = [line(f"r{n}", f"{n}", **({"temperature": "hot"} if n % 8 in {1, 4, 6} else {})) for n in range(400)]
        batch = await site.acme.create(await site.acme.upload(jsonl(lines)))

        looks = await watch(site.acme, batch["id"])
        ended = await site.acme.ended(batch["id"])

        assert ended.counts == (400, 250, 150)
        during = [look["request_counts"] for look in looks if look["status"] == "in_progress"]
        assert any(0 < counts["failed"] < 150 and 0 < counts["completed"] < 250 for counts in during)


@case("K01")
async def test_five_good_lines_and_three_bad_ones_are_five_and_three(site: Site) -> None:
    lines = [line(f"r{n}", **({"temperature": "hot"} if n in {1, 4, 6} else {})) for n in range(8)]

    assert (await site.acme.run(jsonl(lines))).counts == (8, 5, 3)


@case("K02")
async def test_counts_only_grow_through_retries_a_crash_a_lost_worker_and_a_cancel(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    plan = FaultPlan(seed=5, shares={"503": 0.05, "empty_500": 0.05, "hang_up": 0.05})
    engine = simulated(plan=plan, latency=Latency(decode_seconds_per_token=0.006), max_num_seqs=16, restart_seconds=0.3)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 16}) as site:
        lines = [line(f"r{n}", f"{n}") for n in range(600)]
        batch = await site.acme.create(await site.acme.upload(jsonl(lines)))
        watching = asyncio.create_task(watch(site.acme, batch["id"]))

        async def progress(completed: int) -> None:
            async with asyncio.timeout(60):
                while (await site.acme.get(batch["id"]))["request_counts"]["completed"] < completed:
                    await asyncio.sleep(0.02)

        await progress(1)
        assert isinstance(engine.inner, SimulatedEngine)
        engine.inner.crash()
        await progress(120)
        lost = site.service.workers.pop()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        # The same name comes back as another incarnation, as after a restart.
        site.service.add_worker(engine, name="worker-1", slots=16)
        await progress(240)
        assert (await site.acme.cancel(batch["id"])).status_code == 200
        looks = await watching
        ended = await site.acme.ended(batch["id"])

        assert ended.status == "cancelled"
        assert looks[-1]["request_counts"] == ended.batch["request_counts"]
        assert 240 <= ended.counts[1] < 600


@case("K04")
async def test_total_is_zero_until_it_is_known_and_never_changes_then(site: Site) -> None:
    site.held.add("plan")
    batch = await site.acme.create(await site.acme.upload(read("p05_blank_lines.jsonl")))
    first = await site.acme.get(batch["id"])
    watching = asyncio.create_task(watch(site.acme, batch["id"]))
    site.held.remove("plan")
    looks = await watching

    assert (first["status"], first["request_counts"]) == ("validating", {"total": 0, "completed": 0, "failed": 0})
    totals = [(look["status"] == "validating", look["request_counts"]["total"]) for look in looks]
    # Blank lines are none: the file has seven physical lines and three requests.
    assert set(totals) <= {(True, 0), (False, 3)}
    assert looks[-1]["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
