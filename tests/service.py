"""The service in one process, on a real database and store: every stage as its own loop, workers on any engine.

For tests of what the stages do together. ``tests/e2e`` runs the real processes instead.
"""

import asyncio
import itertools
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.accounts import create_tenant
from slackwater.db.batches import BatchRecord, NewBatch, cancel_batch, create_batch, get_batch
from slackwater.db.catalog import add_alias, add_model
from slackwater.db.election import ElectionLock
from slackwater.db.files import NewFile, create_file, get_file
from slackwater.db.queue.planning import PlanClaim, PlannedChunk, claim_planning, publish_plan
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.domain.ids import BatchId, FileId, TenantId, WorkerId, batch_id, file_id, tenant_id
from slackwater.domain.outcomes import RetryPolicy
from slackwater.flow.audit import Report, audit
from slackwater.flow.claims import ClaimReturns
from slackwater.flow.finish import Finisher
from slackwater.flow.loop import Stage, run_stage
from slackwater.flow.plan import Planner, PlanSettings
from slackwater.flow.schedule import Leader
from slackwater.flow.sweep import Sweeper
from slackwater.flow.work import Worker, WorkSettings
from slackwater.flow.work_feed import FeedSettings
from slackwater.flow.work_meter import WorkMeter
from slackwater.inference.protocol import Engine
from slackwater.inference.simulated import SimulatedEngine
from slackwater.metrics import Metrics, create_metrics

TERMINAL = {"completed", "failed", "expired", "cancelled"}
MODEL = "simulated"

_serial = itertools.count(1)


def new_uuid() -> uuid.UUID:
    """Ids that sort by creation and never repeat."""
    return uuid.UUID(int=(time.time_ns() << 56) | next(_serial))


def line(custom_id: str, content: str = "hi", *, model: str = MODEL, **body: Any) -> dict[str, Any]:
    """One chat request line."""
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 8, **body},
    }


def jsonl(lines: Iterable[dict[str, Any]]) -> bytes:
    """Lines as a file."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


@dataclass(kw_only=True)
class Service:
    """Handles on a running service."""

    db: Database
    store: BlobStore
    metrics: Metrics
    tenant: TenantId
    stop: asyncio.Event
    workers: list[asyncio.Task[None]] = field(default_factory=list)
    worker_stops: list[asyncio.Event] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    """Names of stages that rest until they are taken out of here."""

    async def upload(self, data: bytes, *, tenant: TenantId | None = None) -> FileId:
        """Store a batch input as an upload would."""
        file = file_id(new_uuid())
        written = await self.store.put(keys.input_key(file), data, stage="test")
        new = NewFile(
            id=file,
            purpose="batch",
            filename="in.jsonl",
            size_bytes=written.size_bytes,
            sha256=written.sha256,
            object_key=keys.input_key(file),
            expires_after=None,
        )
        await create_file(self.db, tenant_id=tenant or self.tenant, new=new, once=None)
        return file

    async def submit(
        self,
        data: bytes | Iterable[dict[str, Any]],
        *,
        endpoint: str = "/v1/chat/completions",
        window: timedelta = timedelta(hours=24),
        invalid_lines: str = "fail",
        tenant: TenantId | None = None,
    ) -> BatchId:
        """Upload lines and make a batch of them."""
        raw = data if isinstance(data, bytes) else jsonl(data)
        file = await self.upload(raw, tenant=tenant)
        batch = batch_id(new_uuid())
        new = NewBatch(
            id=batch,
            dialect="openai",
            endpoint=endpoint,
            completion_window="24h",
            window=window,
            input_file_id=file,
            invalid_lines=invalid_lines,
            metadata=None,
            output_expires_seconds=None,
        )
        await create_batch(self.db, tenant_id=tenant or self.tenant, new=new, once=None)
        return batch

    async def get(self, batch: BatchId) -> BatchRecord:
        """Read a batch as its tenant."""
        return await get_batch(self.db, tenant_id=self.tenant, dialect="openai", batch_id=batch)

    async def cancel(self, batch: BatchId) -> BatchRecord:
        """Cancel a batch as its tenant."""
        return await cancel_batch(self.db, tenant_id=self.tenant, dialect="openai", batch_id=batch)

    async def until(self, batch: BatchId, *statuses: str, seconds: float = 60.0) -> BatchRecord:
        """Wait until a batch is in one of the states; any end of it by default."""
        wanted = set(statuses) or TERMINAL
        async with asyncio.timeout(seconds):
            while True:
                found = await self.get(batch)
                if found.status in wanted:
                    return found
                await asyncio.sleep(0.02)

    async def file_lines(self, file: FileId | None) -> list[dict[str, Any]]:
        """Read a result file's lines; none where there is no file."""
        if file is None:
            return []
        row = await get_file(self.db, tenant_id=self.tenant, file_id=file)
        data = await self.store.get(row.object_key)
        return [json.loads(raw) for raw in data.split(b"\n") if raw]

    async def results(self, batch: BatchId) -> dict[str, dict[str, Any]]:
        """Read both result files by custom id; fails where one appears twice."""
        found = await self.get(batch)
        lines = await self.file_lines(found.output_file_id) + await self.file_lines(found.error_file_id)
        by_id = {one["custom_id"]: one for one in lines}
        assert len(by_id) == len(lines)
        return by_id

    async def audit(self, batch: BatchId) -> Report:
        """Audit a batch and insist that it is sound."""
        report = await audit(self.db, self.store, batch)
        assert report.sound, report.faults
        return report

    def add_worker(self, engine: Engine, /, *, slots: int = 32, name: str | None = None, **settings: Any) -> None:
        """Start one more worker."""
        stop = asyncio.Event()
        retries = settings.pop("retries", RetryPolicy(first_pause_seconds=0.01, longest_pause_seconds=0.05))
        timeout = settings.pop("request_timeout_seconds", 30.0)
        worker = Worker(
            self.db,
            self.store,
            engine,
            settings=WorkSettings(
                worker_id=WorkerId(name or f"worker-{len(self.workers) + 1}"),
                incarnation=new_uuid(),
                slots=slots,
                feed=FeedSettings(in_flight=slots, request_timeout_seconds=timeout, retries=retries),
                **{"drain_seconds": 5.0, **settings},
            ),
            observer=WorkMeter(self.metrics, model=MODEL, slots=slots, surplus=0, gpus=0),
            clock=time.perf_counter,
            jitter=random.random,
        )
        self.worker_stops.append(stop)
        self.workers.append(asyncio.create_task(worker.run(stop)))


async def plan_evenly(db: Database, store: BlobStore, *, chunk_lines: int, claim: PlanClaim | None = None) -> bool:
    """Publish a plan of chunks of so many lines each, in place of planning: the input's own lines, in order."""
    claim = claim or await claim_planning(db)
    if claim is None:
        return False
    lines = (await store.get(claim.input_key)).splitlines(keepends=True)
    chunks, start = [], 0
    for seq, at in enumerate(range(0, len(lines), chunk_lines)):
        group = lines[at : at + chunk_lines]
        size = sum(map(len, group))
        chunks.append(
            PlannedChunk(
                seq=seq, model=MODEL, byte_start=start, byte_length=size, n_requests=len(group), cost_seconds=1.0
            )
        )
        start += size
    model = json.loads(lines[0])["body"]["model"]
    await publish_plan(db, claim, model=model, plan_key=None, index_key=None, chunks=chunks, refused=None)
    return True


def stages(
    db: Database, store: BlobStore, metrics: Metrics, leader: Leader, scratch: Path, cut: CutRules
) -> list[Stage]:
    """The stages of one control process, resting as briefly as a test wants."""
    finisher = Finisher(
        db=db,
        store=store,
        new_uuid=new_uuid,
        stop_grace_seconds=5.0,
        default_expiry_seconds=3600.0,
        ended=lambda ending: metrics.batch_end(ending).inc(),
        revoked=metrics.lease("lost").inc,
        returns=ClaimReturns(db),
    )
    sweeper = Sweeper(db=db, store=store, keep_seconds=86400.0, now=lambda: datetime.now(UTC))
    planner = Planner(
        db=db,
        blobs=store,
        settings=PlanSettings(scratch=scratch, cut=cut),
        observer=Rejections(),
        clock=time.perf_counter,
        choose=random.randrange,
        returns=ClaimReturns(db),
    )
    return [
        Stage(name="plan", once=planner.plan_once, rest_seconds=0.01),
        Stage(name="schedule", once=leader.schedule_once, rest_seconds=0.01),
        Stage(name="finish", once=finisher.expire_once, rest_seconds=0.02),
        Stage(name="finish", once=finisher.finish_once, rest_seconds=0.01),
        Stage(name="sweep", once=sweeper.sweep_files_once, rest_seconds=0.2),
    ]


def holdable(stage: Stage, held: set[str]) -> Stage:
    """Let a test hold a stage: it then finds nothing to do."""

    async def once() -> bool:
        return False if stage.name in held else await stage.once()

    return replace(stage, once=once)


class Rejections:
    """Counts refused lines by code."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.batches = 0

    def rejected(self, code: str, lines: int) -> None:
        """See PlanObserver."""
        self.lines[code] = self.lines.get(code, 0) + lines

    def failed(self) -> None:
        """See PlanObserver."""
        self.batches += 1


@asynccontextmanager
async def running_service(
    db: Database,
    store: BlobStore,
    database_url: str,
    scratch: Path,
    *,
    engines: Sequence[Engine] | None = None,
    cut: CutRules | None = None,
    held: Iterable[str] = (),
) -> AsyncIterator[Service]:
    """Run every stage and one worker an engine (one simulated engine by default) while the block runs."""
    metrics = create_metrics(CollectorRegistry(), version="test", clock=time.perf_counter)
    stop = asyncio.Event()
    leader = Leader(
        db=db,
        lock=ElectionLock(database_url),
        holder="test",
        granted=metrics.lease("granted").inc,
        reaped=metrics.lease("lost").inc,
    )
    tenant = tenant_id(new_uuid())
    await create_tenant(db, tenant_id=tenant, name=f"tenant-{tenant}", actor="test")
    await add_model(db, model_id=MODEL, actor="test", max_model_len=32768)
    await add_alias(db, alias="gpt-4.1-mini", model_id=MODEL, actor="test")
    service = Service(db=db, store=store, metrics=metrics, tenant=tenant, stop=stop, held=set(held))
    loops = [
        asyncio.create_task(run_stage(holdable(stage, service.held), stop=stop, observer=metrics.stage(stage.name)))
        for stage in stages(db, store, metrics, leader, scratch, cut or CutRules())
    ]
    for engine in engines if engines is not None else [SimulatedEngine()]:
        service.add_worker(engine)
    try:
        yield service
    finally:
        for worker_stop in service.worker_stops:
            worker_stop.set()
        await asyncio.gather(*service.workers, return_exceptions=True)
        stop.set()
        await asyncio.gather(*loops)
        await leader.close()
