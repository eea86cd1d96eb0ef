"""A worker cut off from PostgreSQL, the store or its engine, for a moment and for longer than its lease, comes back.

Two workers share a batch; the way of one is cut while the other goes on. No line may fail for it: a line that failed
once for a reason of its own would be an error here, since it has one try.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry

from slackwater.blobs.store import open_store
from slackwater.db.session import Database, PoolSettings
from slackwater.domain.cutting import CutRules
from slackwater.domain.outcomes import RetryPolicy
from slackwater.flow.work_engine import WatchSettings
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_server import serve
from slackwater.metrics import create_metrics
from tests.cases.recording import RecordingEngine
from tests.proxies import How, Proxy, proxied
from tests.s3 import S3Server
from tests.service import Service, line, running_service

Part = Literal["database", "store", "engine"]

LINES: Final = 360
SLOTS: Final = 8
SLOW: Final = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.02), max_num_seqs=SLOTS)
"""0.16 s a line."""
ONE_TRY: Final = RetryPolicy(max_attempts=1)
SILENCED: Final = "UPDATE workers SET heartbeat_at = now() - interval '1 hour' WHERE id = 'cut'"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Two workers on one batch."""

    service: Service
    cut_service: Service
    """The same, as the worker sees it whose ways may be cut."""
    cut_engine: RecordingEngine
    other_engine: RecordingEngine
    ways: dict[Part, Proxy]

    async def until_answered(self, engine: RecordingEngine, more: int) -> None:
        """Wait until an engine has answered so many more lines."""
        wanted = len(engine.finished) + more
        async with asyncio.timeout(60):
            while len(engine.finished) < wanted:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def scene(database_url: str, seaweedfs: S3Server, folder: Path) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as stack:
        server = await serve(SimulatedEngine(SLOW))
        stack.push_async_callback(server.close)
        ways: dict[Part, Proxy] = {}
        targets: dict[Part, str] = {"database": database_url, "store": seaweedfs.endpoint, "engine": server.url}
        for part, url in targets.items():
            ways[part] = await stack.enter_async_context(proxied("127.0.0.1", urlsplit(url).port or 0))

        db = Database.connect(database_url, pool=PoolSettings(hot=8, other=4))
        stack.push_async_callback(db.close)
        cut_db = Database.connect(_through(database_url, ways["database"]), pool=PoolSettings(hot=4, other=2))
        stack.push_async_callback(cut_db.close)
        url = seaweedfs.new_url()
        store = open_store(url, settings=seaweedfs.settings())
        stack.push_async_callback(store.close)
        metrics = create_metrics(CollectorRegistry(), version="test", clock=time.perf_counter)
        cut_store = open_store(
            url,
            settings=replace(seaweedfs, endpoint=_through(seaweedfs.endpoint, ways["store"])).settings(),
            observer=metrics.store(),
        )
        stack.push_async_callback(cut_store.close)

        service = await stack.enter_async_context(
            running_service(
                db, store, database_url, folder, engines=[], cut=CutRules(min_requests=1, max_requests=2 * SLOTS)
            )
        )
        cut_service = replace(service, db=cut_db, store=cut_store, metrics=metrics, workers=[], worker_stops=[])
        stack.push_async_callback(_stop, cut_service)
        cut_engine = RecordingEngine(OpenAIServer(_through(server.url, ways["engine"])))
        stack.push_async_callback(cut_engine.close)
        other_engine = RecordingEngine(SimulatedEngine(SLOW))
        watch = WatchSettings(outage_seconds=2.0, check_seconds=0.2)
        cut_service.add_worker(cut_engine, slots=SLOTS, name="cut", retries=ONE_TRY, engine=watch)
        service.add_worker(other_engine, slots=SLOTS, name="other", retries=ONE_TRY)
        yield Scene(
            service=service,
            cut_service=cut_service,
            cut_engine=cut_engine,
            other_engine=other_engine,
            ways=ways,
        )


def counted(service: Service, name: str, **labels: str) -> float:
    """Add up a metric over the series that have these labels."""
    samples = [sample for family in service.metrics.registry.collect() for sample in family.samples]
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def _through(url: str, way: Proxy) -> str:
    return url.replace(f":{urlsplit(url).port}", f":{way.port}", 1)


async def _stop(service: Service) -> None:
    for stop in service.worker_stops:
        stop.set()
    await asyncio.gather(*service.workers)


@pytest.mark.parametrize(("how", "length"), [("reset", "short"), ("silent", "long"), ("slow", "short")])
@pytest.mark.parametrize("part", ["database", "store", "engine"])
async def test_a_worker_that_is_cut_off_comes_back_and_no_line_pays_for_it(
    database_url: str, seaweedfs: S3Server, tmp_path: Path, part: Part, how: How, length: str
) -> None:
    async with scene(database_url, seaweedfs, tmp_path) as running:
        service, way = running.service, running.ways[part]
        batch = await service.submit((line(f"r{n}") for n in range(LINES)), window=timedelta(hours=1))
        await running.until_answered(running.cut_engine, SLOTS)

        way.cut(how)
        await running.until_answered(running.other_engine, 2 * SLOTS if length == "long" else SLOTS)
        if length == "long" and part == "database":
            # As if its heartbeat were older than a lease.
            await service.db.fetch("test", SILENCED, {})
            async with asyncio.timeout(60):
                held = "SELECT 1 FROM chunks WHERE state = 'leased' AND worker_id = 'cut'"
                while await service.db.fetch("test", held, {}):
                    await asyncio.sleep(0.05)
        elif length == "long" and part == "engine":
            async with asyncio.timeout(60):
                while not counted(running.cut_service, "slackwater_engine_outages_total"):
                    await asyncio.sleep(0.05)
        way.heal()

        ended = await service.until(batch, seconds=120)
        assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES, 0)
        assert len(await service.results(batch)) == LINES
        await service.audit(batch)
        # It is fit for work again, all by itself.
        service.worker_stops[0].set()
        await service.workers[0]
        alone = await service.submit([line(f"r{n}") for n in range(SLOTS)])
        assert (await service.until(alone, seconds=120)).succeeded == SLOTS
        await service.audit(alone)
        if length == "long" and part == "database":
            # Counted where they were taken away, in the leader.
            assert counted(service, "slackwater_leases_total", outcome="lost")
