"""Work: one engine and its feeder. Ask the database what is leased, run it, commit each chunk atomically.

A commit writes the chunk's result objects under names that hold the lease token, then flips the chunk's pointer with
one guarded statement: a lease that was lost meanwhile commits nothing. The token alone decides; this process never
asks itself whether its heartbeat is fresh.

``work_feed`` keeps the engine full, ``work_chunk`` holds one chunk's lines, ``work_holdings`` the leases on their way,
``work_commit`` writes results, ``work_speed`` measures.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import structlog

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import Report, announce_model, learn_model, register_worker, sync
from slackwater.db.session import Database
from slackwater.domain.errors import EngineError, LeaseLost, Unavailable
from slackwater.domain.ids import WorkerId
from slackwater.flow.work_feed import Feeder, FeedObserver, FeedSettings
from slackwater.flow.work_holdings import Holdings, HoldingsObserver
from slackwater.inference.protocol import Engine

_LOG: Final = structlog.get_logger("slackwater.work")
_IDLE_SYNC_SECONDS: Final = 1.0
_HUNGRY_SYNC_SECONDS: Final = 0.1
_LEAST_SYNC_GAP_SECONDS: Final = 0.05
_ENGINE_CHECK_SECONDS: Final = 0.5
_LAST_SECONDS: Final = 10.0
"""Beyond the grace: how long commits and returns may still take before the process ends without them."""


class WorkObserver(FeedObserver, HoldingsObserver, Protocol):
    """Told what the metrics of a worker need."""

    def synced(self, seconds: float) -> None:
        """One exchange with the database took so long."""
        ...

    def load(self, *, in_flight: int, lines_waiting: bool) -> None:
        """How full the engine is now, and whether lines wait for a slot of it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkSettings:
    """How one worker works."""

    worker_id: WorkerId
    incarnation: UUID
    slots: int
    """Requests that the engine runs at once."""
    feed: FeedSettings
    lookahead_seconds: float = 1.0
    """How much work to hold beyond what runs, in seconds of this worker's own measured speed."""
    outage_seconds: float = 120.0
    """How long chunks are kept while the engine is away, before they are given back."""
    drain_seconds: float = 30.0
    """How long chunks that run may take to end once the process is told to stop."""


class Worker:
    """One worker process. ``clock`` is monotonic, in seconds; ``jitter`` gives numbers in [0, 1)."""

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        engine: Engine,
        *,
        settings: WorkSettings,
        observer: WorkObserver,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._db = db
        self._store = store
        self._engine = engine
        self._settings = settings
        self._observer = observer
        self._clock = clock
        self._jitter = jitter
        self._nudge = asyncio.Event()
        self._doubt = asyncio.Event()
        self._engine_up = True
        self._overdue = False
        """Set when a drain has lasted too long: the database is away, or has forgotten us."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish what runs within the grace and give the rest back.

        Raises LeaseLost when another process has taken this worker's name.
        """
        if not await self._begin(stop):
            return
        feeder, holdings = self._equip()
        feeder.start()
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(self._watch_engine(feeder, holdings)),
                    group.create_task(self._drain(stop, holdings)),
                    group.create_task(feeder.watch()),
                ]
                await self._sync_for_ever(stop, feeder, holdings)
                for task in beside:
                    task.cancel()
        except ExceptionGroup as group_of_errors:
            lost, others = group_of_errors.split(LeaseLost)
            if lost is None or others is not None:
                raise
            raise lost.exceptions[0] from None
        finally:
            await holdings.settle(_LAST_SECONDS)
            await feeder.close()

    def _equip(self) -> tuple[Feeder, Holdings]:
        """Make the feeder and the holdings, each knowing of the other."""
        holdings: Holdings
        feeder = Feeder(
            self._engine,
            settings=self._settings.feed,
            observer=self._observer,
            completed=lambda run: holdings.complete(run),  # noqa: PLW0108  bound when called: it is made below
            hungry=lambda: holdings.open_more(),  # noqa: PLW0108
            unreachable=self._doubt.set,
            clock=self._clock,
            jitter=self._jitter,
        )
        holdings = Holdings(
            self._db,
            self._store,
            feeder,
            observer=self._observer,
            changed=self._nudge.set,
            clock=self._clock,
            lines_ahead=self._settings.feed.in_flight * 2,
            knows_priority=self._engine.knows_priority,
        )
        return feeder, holdings

    async def _begin(self, stop: asyncio.Event) -> bool:
        """Wait for the engine, then register; False when told to stop first."""
        while not stop.is_set():
            if await self._engine.ready():
                try:
                    await self._register()
                except (EngineError, Unavailable) as error:
                    _LOG.warning("cannot register yet", cause=str(error))
                else:
                    return True
            await _rest(stop, _ENGINE_CHECK_SECONDS)
        return False

    async def _register(self) -> None:
        """Announce this process and the models its engine serves."""
        served = await self._engine.models()
        for model in served:
            await announce_model(self._db, model.name, model.max_model_len)
        models = [model.name for model in served]
        await register_worker(
            self._db,
            worker_id=self._settings.worker_id,
            incarnation=self._settings.incarnation,
            models=models,
            slots=self._settings.slots,
        )
        _LOG.info("worker ready", worker=self._settings.worker_id, models=models)

    async def _sync_for_ever(self, stop: asyncio.Event, feeder: Feeder, holdings: Holdings) -> None:
        """Poll: every second, soon after each commit, and often while there is room and work waits."""
        while not (stop.is_set() and (holdings.empty or self._overdue)):
            self._nudge.clear()
            began = self._clock()
            pause = _IDLE_SYNC_SECONDS
            try:
                if await self._sync(feeder, holdings, began):
                    pause = _HUNGRY_SYNC_SECONDS
                if feeder.speed.measure(began, feeder.finished_lines):
                    await self._teach(feeder, holdings)
            except Unavailable as error:
                _LOG.warning("sync failed", cause=str(error))
            await _rest(self._nudge, pause)
            await asyncio.sleep(max(0.0, _LEAST_SYNC_GAP_SECONDS - (self._clock() - began)))

    async def _sync(self, feeder: Feeder, holdings: Holdings, began: float) -> bool:
        """Report and obey; returns whether work waits that this worker has room for. Raises LeaseLost."""
        orders = await sync(self._db, self._report(feeder, holdings))
        if orders is None:
            raise LeaseLost("another process has taken this worker's name; stop one of the two")
        self._observer.synced(self._clock() - began)
        holdings.obey(orders, began)
        waiting = orders.work_waits or feeder.untried_lines > 0
        self._observer.load(in_flight=feeder.in_flight, lines_waiting=waiting)
        return orders.work_waits and feeder.in_flight < self._settings.slots

    def _report(self, feeder: Feeder, holdings: Holdings) -> Report:
        """Say how much more work is wanted: look-ahead in lines, beyond what is finished but not yet committed."""
        ready = self._engine_up and holdings.taking
        least = self._settings.feed.in_flight * 2
        speed = feeder.speed.lines_per_second
        ahead = int((speed or 0.0) * self._settings.lookahead_seconds)
        return Report(
            worker_id=self._settings.worker_id,
            incarnation=self._settings.incarnation,
            target_lines=holdings.finished_lines + max(least, ahead) if ready else 0,
            in_flight=feeder.in_flight,
            engine_ready=ready,
            lines_per_second=speed,
        )

    async def _teach(self, feeder: Feeder, holdings: Holdings) -> None:
        """Tell planning how fast a line of each model is and how long a token: chunks are cut by it."""
        assert feeder.speed.lines_per_second is not None
        tallies, holdings.tallies = holdings.tallies, {}
        for model, tally in tallies.items():
            await learn_model(
                self._db,
                model,
                seconds_per_line=1.0 / feeder.speed.lines_per_second,
                bytes_per_token=tally.prompt_bytes / tally.input_tokens if tally.input_tokens else None,
            )

    async def _watch_engine(self, feeder: Feeder, holdings: Holdings) -> None:
        """Shut the gate while the engine is away; an outage that lasts gives the chunks back."""
        away_since: float | None = None
        while True:
            await _rest(self._doubt, _ENGINE_CHECK_SECONDS * 4)
            self._doubt.clear()
            if await self._engine.ready():
                if away_since is not None:
                    _LOG.info("engine is back", seconds=round(self._clock() - away_since, 1))
                away_since, self._engine_up = None, True
                feeder.open_gate()
                continue
            feeder.shut_gate()
            self._engine_up = False
            if away_since is None:
                _LOG.warning("engine is away")
                away_since = self._clock()
                self._nudge.set()
            elif self._clock() - away_since > self._settings.outage_seconds and not holdings.empty:
                await holdings.give_back()
            await asyncio.sleep(_ENGINE_CHECK_SECONDS)
            self._doubt.set()

    async def _drain(self, stop: asyncio.Event, holdings: Holdings) -> None:
        """When told to stop: take nothing new, give back what does not end within the grace, and end in any case."""
        await stop.wait()
        holdings.taking = False
        self._nudge.set()
        await asyncio.sleep(self._settings.drain_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await holdings.give_back()
        self._overdue = True
        self._nudge.set()


async def _rest(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but no longer than that."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
