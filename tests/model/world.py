"""The world of one example: a real database and store, every stage of the service, and a clock that is moved by hand.

Time passes by moving every time in the database back, whatever table it stands in: leases lapse, claims end, windows
close and files grow old as they would, and nobody waits.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
from hypothesis.stateful import RuleBasedStateMachine

from slackwater.db.accounts import create_tenant
from slackwater.db.catalog import add_model
from slackwater.db.election import ElectionLock
from slackwater.db.session import Database, PoolSettings
from slackwater.domain.cutting import CutRules
from slackwater.domain.ids import TenantId, tenant_id
from slackwater.flow.claims import ClaimReturns
from slackwater.flow.finish import Finisher
from slackwater.flow.plan import Planner, PlanSettings
from slackwater.flow.schedule import Leader
from slackwater.flow.sweep import Sweeper
from slackwater.inference.simulated import SimulatedEngine
from tests.model.crossings import CrossedStore, DatabaseCrossings, Process
from tests.service import MODEL, Rejections, new_uuid

GRACE_SECONDS: Final = 30.0
KEEP_SECONDS: Final = 3 * 86_400.0
EXPIRY_SECONDS: Final = 30 * 86_400.0
"""Of result files, where their batch says nothing else."""
_CUT: Final = CutRules(min_requests=2, max_requests=3, unlearnt_requests=3)

T = TypeVar("T")


class Grounds:
    """What the examples of one run share: a migrated database, a loop, and a folder."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.database_url = database_url
        self.folder = folder
        self.runner = asyncio.Runner()
        self.db = Database.connect(
            database_url, pool=PoolSettings(hot=12, other=6, timeout_seconds=60.0), seam=DatabaseCrossings()
        )
        self.examples = 0
        self.tally: Counter[str] = Counter()
        """How often what happened: ends of batches by state, and mishaps by their place."""
        with psycopg.connect(database_url) as connection:
            names = connection.execute(
                "SELECT table_name, column_name"
                " FROM information_schema.columns JOIN pg_tables ON tablename = table_name"
                " WHERE schemaname = 'public' AND data_type = 'timestamp with time zone' ORDER BY 1, 2"
            ).fetchall()
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
            ).fetchall()
        times: dict[str, list[str]] = {}
        for table, column in names:
            times.setdefault(table, []).append(column)
        self._empty = f"TRUNCATE {', '.join(table for (table,) in tables)} CASCADE"
        self._shifts = [
            f"UPDATE {table} SET {', '.join(f'{c} = {c} - make_interval(secs => %(by)s)' for c in columns)}"  # noqa: S608  names of our own schema
            for table, columns in times.items()
        ]

    async def empty(self) -> None:
        """Take everything out of the database."""
        await self.db.fetch("test", self._empty, {})

    async def shift(self, by: timedelta) -> None:
        """Move every time in the database into the past, at one instant."""
        async with self.db.driver_transaction("test") as transaction:
            for statement in self._shifts:
                await transaction.fetch(statement, {"by": by.total_seconds()})

    def close(self) -> None:
        self.runner.run(self.db.close())
        self.runner.close()


@dataclass(kw_only=True, eq=False)
class Control:
    """One control process, and what it has in memory."""

    process: Process
    planner: Planner
    finisher: Finisher


class World(RuleBasedStateMachine):
    """The service in one process, each of its processes under the example's control."""

    grounds: Grounds

    def __init__(self) -> None:
        super().__init__()
        self.grounds.examples += 1
        self.db = self.grounds.db
        self.folder = self.grounds.folder / f"example-{self.grounds.examples}"
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir(parents=True)
        self.store = CrossedStore(self.folder / "objects")
        self.engine = SimulatedEngine()
        self.elapsed = timedelta()
        """How much time has passed."""
        self.sweeper = Sweeper(db=self.db, store=self.store, keep_seconds=KEEP_SECONDS, now=self.now)
        self.controls = [self._control(f"control-{n}") for n in range(3)]
        self.leaders = [self._candidate(name) for name in "ab"]
        self.tenant, self.stranger = tenant_id(new_uuid()), tenant_id(new_uuid())
        self.run(self._begin())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something to its end; frozen processes stay as they are."""
        return self.grounds.runner.run(coroutine)

    def process(self, name: str) -> Process:
        """Make one process of the model."""
        return Process(name=name, tally=self.grounds.tally)

    def now(self) -> datetime:
        """The time as the world has it."""
        return datetime.now(UTC) + self.elapsed

    async def pass_time(self, by: timedelta) -> None:
        """Let time pass."""
        await self.grounds.shift(by)
        self.elapsed += by

    async def rows(self, statement: str, **params: object) -> list[Any]:
        """Ask the database something of the model's own."""
        return await self.db.fetch("test", statement, params)

    def has(self, key: str) -> bool:
        """Whether an object is there."""
        return (self.folder / "objects" / key).is_file()

    async def _begin(self) -> None:
        await self.grounds.empty()
        for tenant in (self.tenant, self.stranger):
            await create_tenant(self.db, tenant_id=TenantId(tenant), name=f"tenant-{tenant}", actor="test")
        await add_model(self.db, model_id=MODEL, actor="test", max_model_len=32_768)

    def _control(self, name: str) -> Control:
        """Make one control process, which remembers nothing yet."""
        return Control(
            process=self.process(name),
            planner=Planner(
                db=self.db,
                blobs=self.store,
                settings=PlanSettings(scratch=self.scratch, cut=_CUT),
                observer=Rejections(),
                clock=lambda: time.perf_counter() + self.elapsed.total_seconds(),
                choose=lambda _: 0,
                returns=ClaimReturns(self.db),
            ),
            finisher=Finisher(
                db=self.db,
                store=self.store,
                new_uuid=new_uuid,
                stop_grace_seconds=GRACE_SECONDS,
                default_expiry_seconds=EXPIRY_SECONDS,
                ended=lambda _: None,
                revoked=lambda _: None,
                returns=ClaimReturns(self.db),
            ),
        )

    def _candidate(self, name: str) -> Leader:
        return Leader(
            db=self.db,
            lock=ElectionLock(self.grounds.database_url),
            holder=name,
            granted=lambda _: None,
            reaped=lambda _: None,
        )

    async def leave(self) -> None:
        """Give back what the example held."""
        for leader in self.leaders:
            await leader.lock.close()
        await self.store.close()
