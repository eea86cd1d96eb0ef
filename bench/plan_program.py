"""Planning alone, as a process of its own: plans one input several times. ``python -m bench.plan_program``.

Reads an order as JSON on stdin (:class:`Order`) and prints one JSON list: for each round wall and CPU seconds of
``plan_once`` and the peak memory of this process while it ran. The file is put into the store before, unmeasured.
"""

import asyncio
import random
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import uuid_utils.compat
import uvloop

from bench import proc
from bench.workload import PATH, SIMULATED
from slackwater.blobs import keys
from slackwater.blobs.bucket import prepare_bucket
from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.store import open_store
from slackwater.db.accounts import create_tenant
from slackwater.db.batches import NewBatch, create_batch, get_batch
from slackwater.db.catalog import add_model
from slackwater.db.files import NewFile, create_file
from slackwater.db.queue.leases import learn_model
from slackwater.db.session import Database
from slackwater.domain.ids import FileId, TenantId, batch_id, file_id, tenant_id
from slackwater.flow.claims import ClaimReturns
from slackwater.flow.plan import Planner, PlanSettings
from slackwater.logs import configure

_PIECE_BYTES = 1 << 20
_ACTOR = "bench"
_LEARNT_SECONDS_PER_LINE = 1 / 25_000
_LEARNT_BYTES_PER_TOKEN = 4.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to plan, where."""

    database_url: str
    """Of a migrated database."""
    store_url: str
    store: dict[str, Any]
    """Fields of ``StoreSettings``."""
    requests: str
    """Path of the input."""
    lines: int
    rounds: int
    scratch: str


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What one round took."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


class _Ignored:
    """An observer for inputs without a refused line."""

    def rejected(self, code: str, lines: int) -> None:
        raise AssertionError(f"{lines} lines were refused: {code}")

    def failed(self) -> None:
        raise AssertionError("the input was refused")


async def plan_rounds(order: Order) -> list[Spent]:
    """Plan the input as often as ordered, each time for a batch of its own."""
    db = Database.connect(order.database_url)
    settings = StoreSettings(**order.store)
    await prepare_bucket(order.store_url, settings=settings)
    store = open_store(order.store_url, settings=settings)
    tenant = tenant_id(_new_uuid())
    await create_tenant(db, tenant_id=tenant, name=f"tenant-{tenant}", actor=_ACTOR)
    await add_model(db, model_id=SIMULATED, actor=_ACTOR, max_model_len=32_768)
    await learn_model(db, SIMULATED, seconds_per_line=_LEARNT_SECONDS_PER_LINE, bytes_per_token=_LEARNT_BYTES_PER_TOKEN)
    planner = Planner(
        db=db,
        blobs=store,
        settings=PlanSettings(scratch=Path(order.scratch)),
        observer=_Ignored(),
        clock=time.perf_counter,
        choose=random.randrange,
        returns=ClaimReturns(db),
    )
    file = await _store(db, store, tenant, Path(order.requests))
    spent = [await _plan(db, planner, tenant, file, order.lines) for _ in range(order.rounds)]
    await store.close()
    await db.close()
    return spent


async def _plan(db: Database, planner: Planner, tenant: TenantId, file: FileId, lines: int) -> Spent:
    """Plan one new batch and check that it was planned to the last line."""
    batch = batch_id(_new_uuid())
    new = NewBatch(
        id=batch,
        dialect="openai",
        endpoint=PATH,
        completion_window="24h",
        window=timedelta(hours=24),
        input_file_id=file,
        invalid_lines="fail",
        metadata=None,
        output_expires_seconds=None,
    )
    await create_batch(db, tenant_id=tenant, new=new, once=None)
    pid = int(Path("/proc/self").readlink().name)
    proc.reset_peak(pid)
    wall, cpu = time.perf_counter(), time.process_time()
    await planner.plan_once()
    spent = Spent(
        wall_seconds=time.perf_counter() - wall,
        cpu_seconds=time.process_time() - cpu,
        peak_bytes=proc.peak_bytes(pid),
    )
    planned = await get_batch(db, tenant_id=tenant, dialect="openai", batch_id=batch)
    assert (planned.status, planned.total) == ("in_progress", lines), planned
    return spent


async def _store(db: Database, store: BlobStore, tenant: TenantId, path: Path) -> FileId:
    """Put the input into the store, as an upload would."""
    file = file_id(_new_uuid())
    async with store.writer(keys.input_key(file), stage="bench") as writer:
        with path.open("rb") as source:
            while piece := source.read(_PIECE_BYTES):
                await writer.write(piece)
        written = await writer.finish()
    new = NewFile(
        id=file,
        purpose="batch",
        filename=path.name,
        size_bytes=written.size_bytes,
        sha256=written.sha256,
        object_key=keys.input_key(file),
        expires_after=None,
    )
    await create_file(db, tenant_id=tenant, new=new, once=None)
    return file


def _new_uuid() -> uuid.UUID:
    return uuid_utils.compat.uuid7()


def main() -> None:
    """Plan what is ordered on stdin."""
    configure("error", stream=sys.stderr, terminal=False)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(msgspec.json.encode(runner.run(plan_rounds(order))).decode())


if __name__ == "__main__":
    main()
