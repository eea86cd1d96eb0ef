"""A whole site in this process: the HTTP API on a port, every stage as its own loop, and workers on given engines."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from slackwater.api.dependencies import ApiDependencies
from slackwater.api.settings import ApiSettings
from slackwater.blobs.store import open_store
from slackwater.db.election import ElectionLock
from slackwater.db.session import Database, PoolSettings, TransactionSeam
from slackwater.domain.bodies import BodyRules
from slackwater.domain.cutting import CutRules
from slackwater.domain.ids import BatchId
from slackwater.domain.limits import InputLimits
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.flow.audit import Report, audit
from slackwater.flow.claims import ClaimReturns
from slackwater.flow.loop import Stage, run_stage
from slackwater.flow.plan import Planner, PlanSettings
from slackwater.flow.schedule import Leader
from slackwater.inference.simulated import SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_writer import SimulatedModel
from slackwater.metrics import Metrics, create_metrics
from tests.api_under_test import Api, new_uuid, running_api
from tests.cases.customer import Customer
from tests.cases.databases import fresh_database
from tests.cases.inputs import MODEL, OTHER_MODEL
from tests.cases.recording import RecordingEngine, WatchedStore
from tests.service import Rejections, Service, holdable, stages

_LEAST_REST_SECONDS: Final = 0.02
"""A dozen sites one after another on a small machine: a stage that looks a hundred times a second is its whole load."""


def simulated(**settings: Any) -> RecordingEngine:
    """Make a simulated engine that serves both models of the collected files."""
    model = SimulatedModel(names=(MODEL, OTHER_MODEL))
    return RecordingEngine(SimulatedEngine(SimulatedSettings(**{"model": model, **settings})))


@dataclass(kw_only=True)
class Site:
    """Handles on a running site."""

    acme: Customer
    globex: Customer
    api: Api
    service: Service
    engines: Sequence[RecordingEngine]
    db: Database
    store: WatchedStore
    metrics: Metrics
    folder: Path
    """Everything the site writes is below this."""
    held: set[str] = field(default_factory=set)
    """Names of stages that rest until they are taken out of here."""

    @property
    def engine(self) -> RecordingEngine:
        """The first engine."""
        return self.engines[0]

    def server_errors(self) -> dict[str, float]:
        """Count the answers so far with a 5xx, by method, route and status."""
        return {
            " ".join((sample.labels["method"], sample.labels["route"], sample.labels["status"])): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "slackwater_http_requests_total" and sample.labels["status"] >= "500"
        }

    def stage_errors(self) -> dict[str, float]:
        """Count the units of work that ended in an error, by stage."""
        return {
            sample.labels["stage"]: sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "slackwater_stage_units_total" and sample.labels["outcome"] == "error" and sample.value
        }

    async def rows(self, statement: str, **params: object) -> list[Any]:
        """Run one statement of the test's own."""
        return await self.db.fetch("test", statement, params)


@asynccontextmanager
async def running_site(
    database_url: str,
    folder: Path,
    *,
    engines: Sequence[RecordingEngine] | None = None,
    limits: InputLimits | None = None,
    rules: BodyRules | None = None,
    api_settings: ApiSettings | None = None,
    seam: TransactionSeam | None = None,
    worker: dict[str, Any] | None = None,
    pool: PoolSettings | None = None,
    cut: CutRules | None = None,
) -> AsyncIterator[Site]:
    """Run a site while the block runs: one worker an engine, one simulated engine by default.

    ``worker`` holds options of ``Service.add_worker``.
    """
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    db = Database.connect(database_url, pool=pool or PoolSettings(hot=16, other=8), seam=seam)
    store = WatchedStore(open_store(f"file://{folder / 'objects'}"))
    metrics = create_metrics(CollectorRegistry(), version="test", clock=time.perf_counter)
    deps = ApiDependencies(
        db=db, blobs=store, metrics=metrics, new_uuid=new_uuid, settings=api_settings or ApiSettings()
    )
    leader = Leader(
        db=db,
        lock=ElectionLock(database_url),
        holder="test",
        granted=metrics.lease("granted").inc,
        reaped=metrics.lease("lost").inc,
    )
    planner = Planner(
        db=db,
        blobs=store,
        settings=PlanSettings(
            scratch=scratch, limits=limits or InputLimits(), rules=rules or BodyRules(), cut=cut or CutRules()
        ),
        observer=Rejections(),
        clock=time.perf_counter,
        choose=random.randrange,
        returns=ClaimReturns(db),
    )

    async def auditing(batch: BatchId) -> Report:
        return await audit(db, store, batch)

    async with running_api(deps) as api:
        acme, globex = (Customer(api.origin, tenant.secret, auditing) for tenant in (api.acme, api.globex))
        site = Site(
            acme=acme,
            globex=globex,
            api=api,
            service=Service(db=db, store=store, metrics=metrics, tenant=api.acme.id, stop=asyncio.Event()),
            engines=[simulated()] if engines is None else engines,
            db=db,
            store=store,
            metrics=metrics,
            folder=folder,
        )
        plan, *others = stages(db, store, metrics, leader, scratch, CutRules())
        async with _running(site, [replace(plan, once=planner.plan_once), *others], worker or {}):
            yield site
        await acme.close()
        await globex.close()
    await leader.close()
    await store.close()
    await db.close()


@asynccontextmanager
async def own_site(server: EmbeddedPostgres, folder: Path, **options: Any) -> AsyncIterator[Site]:
    """Run a site on a database of its own while the block runs; for ``options`` see ``running_site``."""
    with fresh_database(server) as url:
        async with running_site(url, folder, **options) as site:
            yield site


@asynccontextmanager
async def _running(site: Site, parts: Sequence[Stage], worker: dict[str, Any]) -> AsyncIterator[None]:
    """Run the stages and the workers; workers end first, as they give back what they hold."""
    stop = site.service.stop
    loops = [
        asyncio.create_task(
            run_stage(holdable(_calm(stage), site.held), stop=stop, observer=site.metrics.stage(stage.name))
        )
        for stage in parts
    ]
    for engine in site.engines:
        site.service.add_worker(engine, **worker)
    try:
        yield
    finally:
        for worker_stop in site.service.worker_stops:
            worker_stop.set()
        ends = await asyncio.gather(*site.service.workers, return_exceptions=True)
        stop.set()
        await asyncio.gather(*loops)
    assert [end for end in ends if isinstance(end, Exception)] == []


def _calm(stage: Stage) -> Stage:
    """Let a stage rest long enough for a small machine."""
    return replace(stage, rest_seconds=max(stage.rest_seconds, _LEAST_REST_SECONDS))
