"""What a scenario works with: a database and a store of its own, one real process, and the other roles around it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.store import open_store
from slackwater.db.accounts import create_tenant
from slackwater.db.catalog import add_model
from slackwater.db.election import ElectionLock
from slackwater.db.session import Database, PoolSettings
from slackwater.domain.cutting import CutRules
from slackwater.domain.ids import BatchId, tenant_id
from slackwater.flow.loop import Stage, run_stage
from slackwater.flow.schedule import Leader
from slackwater.flow.sweep import Sweeper
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.metrics import create_metrics
from tests.processes import free_port
from tests.service import MODEL, Service, new_uuid, stages

PATIENCE_SECONDS: Final = 600.0
_LEAST_REST_SECONDS: Final = 0.05
"""Several worlds turn at once on a small machine."""


@dataclass(kw_only=True)
class Begun:
    """A batch of a scenario, how it has to end, and the ids of its lines."""

    batch: BatchId
    ids: Collection[str] | None
    """None where the auditor alone may say which lines have a result."""
    ending: str = "completed"


@dataclass(kw_only=True)
class World:
    """One scenario's handles."""

    url: str
    folder: Path
    service: Service
    leader: Leader
    parts: Mapping[str, list[Stage]]
    """What a control process does, by stage, to be run here where no real one does it."""
    begun: list[Begun] = field(default_factory=list)
    child: subprocess.Popen[bytes] | None = None
    api_port: int = field(default_factory=free_port)
    _loops: list["asyncio.Task[None]"] = field(default_factory=list)

    @property
    def db(self) -> Database:
        """The scenario's own way to the database."""
        return self.service.db

    @property
    def store(self) -> BlobStore:
        """The scenario's own way to the store."""
        return self.service.store

    @property
    def barrier(self) -> Path:
        """The file that holds a process at a point while it is there."""
        return self.folder / "barrier"

    async def rows(self, statement: str, **params: object) -> list[Any]:
        """Run one statement of the scenario's own."""
        return await self.db.fetch("test", statement, params)

    async def until_rows(self, statement: str, *, none: bool = False) -> None:
        """Wait until a query finds something, or nothing any more."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while bool(await self.rows(statement)) is none:
                await asyncio.sleep(0.05)

    def run_here(self, *names: str) -> None:
        """Run stages of the control role in this process until the end."""
        for name in names:
            for stage in self.parts[name]:
                loop = run_stage(stage, stop=self.service.stop, observer=self.service.metrics.stage(stage.name))
                self._loops.append(asyncio.create_task(loop))

    async def stop_here(self) -> None:
        """End what runs in this process; it can be run again."""
        for stop in self.service.worker_stops:
            stop.set()
        await asyncio.gather(*self.service.workers)
        self.service.stop.set()
        await asyncio.gather(*self._loops)
        await self.leader.close()
        self.service.workers.clear()
        self.service.worker_stops.clear()
        self._loops.clear()
        self.service.stop.clear()

    def start(self, role: str, *options: str, **settings: str) -> None:
        """Start the real process."""
        environment = {
            "SLACKWATER_DATABASE_URL": self.url,
            "SLACKWATER_STORE_URL": f"file://{self.folder / 'objects'}",
            "SLACKWATER_ENGINE": "simulated",
            "SLACKWATER_PROBE_PORT": "0",
            "SLACKWATER_API_PORT": str(self.api_port),
            "SLACKWATER_WORKER_ID": "real",
        } | {f"SLACKWATER_{name.upper()}": value for name, value in settings.items()}
        with (self.folder / f"{role}.log").open("ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "tests.crashes.program", role, "--supervisor", str(os.getpid()), *options],
                env=os.environ | environment,
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def ended(self) -> int:
        """Wait until the real process has ended, and return how."""
        assert self.child is not None
        await until(lambda: self.child is not None and self.child.poll() is not None)
        return self.child.returncode

    async def told_to_stop(self) -> int:
        """Tell the real process to stop, and return how it ended."""
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        return await self.ended()

    async def pass_the_claims_time(self) -> None:
        """Let the claims of a dead process lapse at once, as they do a minute later."""
        await self.rows("UPDATE batches SET claimed_until = now() - interval '1 second' WHERE claimed_until > now()")

    async def sweep(self) -> None:
        """Remove what ended batches leave behind and what no row names, as the sweep does days later."""
        later = datetime.now(UTC) + timedelta(days=2)
        sweeper = Sweeper(db=self.db, store=self.store, keep_seconds=-1.0, now=lambda: later)
        await sweeper.sweep_segments_once()
        await sweeper.sweep_batches_once()
        await sweeper.sweep_orphans_once()

    async def unnamed_objects(self) -> list[str]:
        """Return the objects that no row names."""
        named = await self.rows(
            "SELECT object_key AS key FROM files WHERE purged_at IS NULL"
            " UNION SELECT out_key FROM chunks UNION SELECT err_key FROM chunks"
            " UNION SELECT object_key FROM chunk_segments"
            " UNION SELECT plan_key FROM batches UNION SELECT index_key FROM batches"
        )
        keys = {row.key for row in named}
        return [stored.key async for stored in self.store.list("") if stored.key not in keys]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)


def slow_engine(seconds_per_token: float, slots: int) -> SimulatedEngine:
    """Make an engine that takes its time."""
    latency = Latency(decode_seconds_per_token=seconds_per_token)
    return SimulatedEngine(SimulatedSettings(max_num_seqs=slots, latency=latency))


@asynccontextmanager
async def new_world(url: str, folder: Path) -> AsyncIterator[World]:
    """Make a world on a migrated database; everything of it ends with the block."""
    (folder / "scratch").mkdir(parents=True)
    db = Database.connect(url, pool=PoolSettings(hot=6, other=2))
    store = open_store(f"file://{folder / 'objects'}")
    metrics = create_metrics(CollectorRegistry(), version="test", clock=time.perf_counter)
    tenant = tenant_id(new_uuid())
    await create_tenant(db, tenant_id=tenant, name="acme", actor="test")
    await add_model(db, model_id=MODEL, actor="test", max_model_len=32_768)
    leader = Leader(
        db=db, lock=ElectionLock(url), holder="here", granted=lambda _: None, reaped=metrics.lease("lost").inc
    )
    parts: dict[str, list[Stage]] = {}
    for stage in stages(db, store, metrics, leader, folder / "scratch", CutRules()):
        calm = Stage(name=stage.name, once=stage.once, rest_seconds=max(stage.rest_seconds, _LEAST_REST_SECONDS))
        parts.setdefault(stage.name, []).append(calm)
    service = Service(db=db, store=store, metrics=metrics, tenant=tenant, stop=asyncio.Event())
    world = World(url=url, folder=folder, service=service, leader=leader, parts=parts)
    try:
        yield world
    finally:
        if world.child is not None and world.child.poll() is None:
            world.child.kill()
            world.child.wait()
        await world.stop_here()
        await store.close()
        await db.close()
