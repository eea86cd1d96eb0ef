"""The scenarios: each takes one role past some of the stages, with a small batch on its way that has to end well.

``arrange`` prepares before the process starts, ``act`` does what customers and operators do while it runs, ``settled``
waits for what the scenario is about beside its batches. All of them go on when the process dies and is started again.
"""

import os
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from slackwater.blobs import keys
from slackwater.domain.ids import file_id
from tests.crashes.customer import visit
from tests.crashes.world import Begun, World, slow_engine, until
from tests.service import jsonl, line, new_uuid, plan_evenly

LONG_AGO_SECONDS: Final = 10 * 86_400


async def _nothing(_world: World) -> None:
    """Do nothing."""


Step = Callable[[World], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """How one role is taken to its stages."""

    role: Literal["api", "control", "work"]
    arrange: Step
    act: Step = _nothing
    settled: Step = _nothing
    hold: str | None = None
    """A point at which the process that is to die waits while the world's barrier stands."""
    settings: dict[str, str] = field(default_factory=dict)


def tickets(count: int) -> list[dict[str, Any]]:
    """Make lines that gain by being sorted: two long prompts, in turn."""
    shared = ("You answer in German. " * 20, "You answer in French. " * 20)
    return [
        line(f"ticket-{n:03d}", f"Ticket {n}", messages=[{"role": "system", "content": shared[n % 2]}, _ask(n)])
        for n in range(count)
    ]


def _ask(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"Ticket {number}"}


def _ids(lines: Iterable[dict[str, Any]]) -> set[str]:
    return {one["custom_id"] for one in lines}


async def _submit(world: World, count: int = 64, *, ending: str = "completed", **options: Any) -> None:
    lines = tickets(count)
    batch = await world.service.submit(lines, **options)
    world.begun.append(Begun(batch=batch, ids=_ids(lines), ending=ending))


async def _fast_worker(world: World) -> None:
    """A small batch, and a worker here."""
    await _submit(world)
    world.service.add_worker(slow_engine(0.0, 32), name="here")


async def _slow_batch(world: World) -> None:
    """A small batch, and all of control here; the real worker takes its time."""
    await _submit(world, 48)
    world.run_here("plan", "schedule", "finish")


async def _tolerant(world: World) -> None:
    lines = [*tickets(40), line("refused", "hello", model="nobody-knows-it")]
    batch = await world.service.submit(lines, invalid_lines="error")
    world.begun.append(Begun(batch=batch, ids=_ids(lines)))
    world.service.add_worker(slow_engine(0.0, 32), name="here")


async def _refused(world: World) -> None:
    batch = await world.service.submit([line("refused", "hello", model="nobody-knows-it")])
    world.begun.append(Begun(batch=batch, ids=(), ending="failed"))
    await _fast_worker(world)


async def _cancel_when_held(world: World) -> None:
    """Cancel the batch while its planner is held, then let it go on."""
    await until(world.barrier.with_suffix(".reached").exists)
    await world.service.cancel(world.begun[0].batch)
    world.begun[0].ending = "cancelled"
    world.begun[0].ids = ()
    world.barrier.unlink()


async def _stop_when_held(world: World) -> None:
    """Tell the process to stop while it is held: what it does is broken off."""
    await until(world.barrier.with_suffix(".reached").exists)
    assert world.child is not None
    world.child.terminate()


async def _dead_worker(world: World) -> None:
    """A worker that died with all of a batch leased to it."""
    await _submit(world)
    await plan_evenly(world.db, world.store, chunk_lines=16)
    await _silent_worker(world)
    await world.rows(
        "UPDATE chunks SET state = 'leased', token = gen_random_uuid(), worker_id = 'dead', attempts = 1,"
        " worker_incarnation = (SELECT incarnation FROM workers WHERE id = 'dead'), leased_at = now()"
    )
    world.service.add_worker(slow_engine(0.0, 32), name="here")


async def _silent_worker(world: World) -> None:
    await world.rows(
        "INSERT INTO workers (id, incarnation, models, slots, heartbeat_at)"
        " VALUES ('dead', gen_random_uuid(), '{simulated}', 8, now() - make_interval(secs => %(seconds)s))",
        seconds=LONG_AGO_SECONDS,
    )


async def _begun_chunk(world: World) -> None:
    """A batch of which a worker kept some lines before it was told to stop."""
    await _submit(world, 32)
    await plan_evenly(world.db, world.store, chunk_lines=32)
    world.run_here("schedule")
    world.service.add_worker(slow_engine(0.05, 2), name="begins", slots=2, checkpoint_seconds=0.2, drain_seconds=0.1)
    await world.until_rows("SELECT 1 FROM chunk_segments")
    await world.stop_here()
    await world.rows("UPDATE workers SET heartbeat_at = now() - interval '1 hour'")


async def _expired(world: World) -> None:
    await _begun_chunk(world)
    await world.rows("UPDATE batches SET deadline = now() - interval '1 second'")
    world.begun[0].ending = "expired"
    await _fast_worker(world)


async def _damaged_segment(world: World) -> None:
    await _begun_chunk(world)
    for row in await world.rows("SELECT object_key FROM chunk_segments"):
        await world.store.put(row.object_key, b"damaged", stage="test")
    world.run_here("plan", "schedule", "finish")


async def _committed(world: World) -> None:
    """A batch whose chunks are all committed, and that nobody has assembled yet."""
    await _submit(world, 32)
    await plan_evenly(world.db, world.store, chunk_lines=16)
    world.run_here("schedule")
    world.service.add_worker(slow_engine(0.0, 8), name="before")
    await world.service.until(world.begun[0].batch, "finalizing")
    await world.stop_here()


async def _part_gone(world: World) -> None:
    """A committed result is gone from the store: its lines run again."""
    await _committed(world)
    (row, *_) = await world.rows("SELECT out_key FROM chunks")
    await world.store.delete([row.out_key], stage="test")
    world.service.add_worker(slow_engine(0.0, 32), name="here")


async def _part_gone_for_good(world: World) -> None:
    """The same, too often: errors stand in for its lines."""
    await _part_gone(world)
    await world.rows("UPDATE chunks SET losses = 1000")


async def _given_up(world: World) -> None:
    """A batch that ended every process that assembled it: it is set aside."""
    await _committed(world)
    await world.rows("UPDATE batches SET claims = 1000")
    world.begun[0].ending, world.begun[0].ids = "failed", ()
    await _fast_worker(world)


async def _sweepable(world: World) -> None:
    """One of everything that the sweep removes, and a batch beside it."""
    await _submit(world, 20)
    world.run_here("plan", "schedule", "finish")
    world.service.add_worker(slow_engine(0.03, 4), name="before", slots=4, checkpoint_seconds=0.1)
    await world.service.until(world.begun[0].batch)
    await world.stop_here()
    assert await world.rows("SELECT 1 FROM chunk_segments"), "nothing was kept"
    await world.rows("UPDATE batches SET completed_at = now() - make_interval(secs => %(s)s)", s=LONG_AGO_SECONDS)
    expired = await world.service.upload(jsonl(tickets(1)))
    await world.rows("UPDATE files SET expires_at = now() - interval '1 hour' WHERE id = %(id)s", id=expired)
    orphan = keys.input_key(file_id(new_uuid()))
    await world.store.put(orphan, b"orphan", stage="test")
    os.utime(world.folder / "objects" / orphan, (1_000_000_000, 1_000_000_000))
    await world.rows(
        "INSERT INTO idempotency_keys (tenant_id, route, key, body_sha256, resource_id, created_at)"
        " VALUES (%(tenant)s, 'batches', 'old', '\\x00', 'batch', now() - interval '2 days')",
        tenant=world.service.tenant,
    )
    await _silent_worker(world)
    await _fast_worker(world)


async def _swept(world: World) -> None:
    """Wait until all of it is gone."""
    left = (
        "SELECT 1 FROM batches WHERE swept_at IS NULL AND completed_at < now() - interval '1 day'"
        " UNION ALL SELECT 1 FROM files WHERE expires_at < now() AND purged_at IS NULL"
        " UNION ALL SELECT 1 FROM chunk_segments"
        " UNION ALL SELECT 1 FROM idempotency_keys UNION ALL SELECT 1 FROM workers WHERE id = 'dead'"
    )
    await world.until_rows(left, none=True)


async def _stop_at_work(world: World) -> None:
    """Tell the worker to stop while it runs a chunk."""
    await world.until_rows("SELECT 1 FROM workers WHERE id = 'real' AND in_flight > 0")
    assert world.child is not None
    world.child.terminate()


async def _served(world: World) -> None:
    """All but the api runs here; the worker takes its time, so that there is something to pause."""
    world.run_here("plan", "schedule", "finish")
    world.service.add_worker(slow_engine(0.02, 4), name="here", slots=4)


_SLOW_ENGINE: Final = {"simulated_seconds_per_token": "0.04", "max_num_seqs": "8", "checkpoint_seconds": "0.3"}

SCENARIOS: Final = {
    "customer": Scenario(role="api", arrange=_served, act=visit),
    "whole": Scenario(role="control", arrange=_fast_worker),
    "tolerant": Scenario(role="control", arrange=_tolerant),
    "refused": Scenario(role="control", arrange=_refused),
    "cancelled": Scenario(role="control", arrange=_fast_worker, act=_cancel_when_held, hold="after:plan.index"),
    "long_claim": Scenario(role="control", arrange=_fast_worker, hold="before:finish.join"),
    "stopped_planner": Scenario(role="control", arrange=_fast_worker, act=_stop_when_held, hold="after:plan.index"),
    "dead_worker": Scenario(role="control", arrange=_dead_worker),
    "expired": Scenario(role="control", arrange=_expired),
    "part_gone": Scenario(role="control", arrange=_part_gone),
    "part_gone_for_good": Scenario(role="control", arrange=_part_gone_for_good),
    "given_up": Scenario(role="control", arrange=_given_up),
    "swept": Scenario(role="control", arrange=_sweepable, settled=_swept, settings={"keep_chunks_days": "3"}),
    "worker": Scenario(role="work", arrange=_slow_batch, settings=_SLOW_ENGINE),
    "damaged_segment": Scenario(role="work", arrange=_damaged_segment, settings=_SLOW_ENGINE),
    "stopped_worker": Scenario(
        role="work", arrange=_slow_batch, act=_stop_at_work, settings=_SLOW_ENGINE | {"drain_grace_seconds": "0"}
    ),
}
"""By the names that ``points`` uses."""
