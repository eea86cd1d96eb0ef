"""Work: one engine and its feeder. Ask the database what is leased, run it, commit each chunk atomically.

A commit writes the chunk's result objects under names that hold the lease token, then flips the chunk's pointer with
one guarded statement: a lease that was lost meanwhile commits nothing. The token alone decides; this process never
asks itself whether its heartbeat is fresh.

The parts: ``work_feed`` keeps the engine full (``work_queue``: which line is next; ``work_pool``: its consumers;
``work_answers``, ``work_doubt``: what becomes of an answer), ``chunk_run`` holds one chunk's lines, ``work_holdings``
the leases on their way, ``chunk_checkpoint`` keeps what is finished, ``chunk_commit`` writes results, ``work_engine``
looks after the engine (``work_progress``, ``work_proof``: is it well), ``work_inquest`` finds the line that kills it,
``work_speed`` measures.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import Report, announce_model, learn_model, leave, register_worker, sync
from slackwater.db.session import Database
from slackwater.domain.errors import EngineError, LeaseLost, Unavailable
from slackwater.domain.ids import WorkerId
from slackwater.flow.work_engine import EngineWatch, WatchSettings
from slackwater.flow.work_feed import Feeder, FeedSettings
from slackwater.flow.work_holdings import Holdings
from slackwater.flow.work_inquest import Inquest
from slackwater.flow.work_observers import WorkObserver
from slackwater.inference.protocol import Engine

_LOG: Final = structlog.get_logger("slackwater.work")
_IDLE_SYNC_SECONDS: Final = 1.0
_HUNGRY_SYNC_SECONDS: Final = 0.1
_LEAST_SYNC_GAP_SECONDS: Final = 0.05
_ENGINE_CHECK_SECONDS: Final = 0.5
_LAST_SECONDS: Final = 10.0
"""Beyond the grace: how long commits and returns may still take before the process ends without them."""


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
    engine: WatchSettings = field(default_factory=WatchSettings)
    checkpoint_seconds: float = 30.0
    """How often what is finished of running chunks is kept."""
    drain_seconds: float = 30.0
    """How long what is at the engine may take to end once the process is told to stop."""


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
        self._served: list[str] = []
        """The names that the engine answers to."""
        self._overdue = False
        """Set when a drain has lasted too long: the database is away, or has forgotten us."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish what runs within the grace and give the rest back.

        Raises LeaseLost when another process has taken this worker's name.
        """
        if not await self._begin(stop):
            return
        feeder, holdings, watch, inquest = self._equip()
        feeder.start()
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(watch.run()),
                    group.create_task(inquest.run()),
                    group.create_task(self._checkpoint_for_ever(holdings)),
                    group.create_task(self._drain(stop, holdings)),
                    group.create_task(feeder.watch()),
                ]
                await self._sync_for_ever(stop, feeder, holdings, watch)
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
        await self._leave()

    def _equip(self) -> tuple[Feeder, Holdings, EngineWatch, Inquest]:
        """Make the parts, each knowing of those it tells."""
        holdings: Holdings
        watch: EngineWatch
        inquest: Inquest
        # The lambdas look their part up when they are called: each is made below.
        feeder = Feeder(
            self._engine,
            settings=self._settings.feed,
            observer=self._observer,
            completed=lambda run: holdings.complete(run),  # noqa: PLW0108
            hungry=lambda: holdings.open_more(),  # noqa: PLW0108
            doubted=lambda: watch.doubt(),  # noqa: PLW0108
            served=self._served,
            clock=self._clock,
            jitter=self._jitter,
        )
        holdings = Holdings(
            self._db,
            self._store,
            feeder,
            observer=self._observer,
            changed=self._nudge.set,
            suspected=lambda: inquest.open(),  # noqa: PLW0108
            clock=self._clock,
            lines_ahead=self._settings.feed.in_flight * 2,
            knows_priority=self._engine.knows_priority,
        )
        inquest = Inquest(feeder, holdings)
        watch = EngineWatch(
            self._engine,
            feeder,
            holdings,
            settings=self._settings.engine,
            observer=self._observer,
            suspected=inquest.open,
            changed=self._nudge.set,
            clock=self._clock,
        )
        return feeder, holdings, watch, inquest

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
        models = self._served = [model.name for model in served]
        await register_worker(
            self._db,
            worker_id=self._settings.worker_id,
            incarnation=self._settings.incarnation,
            models=models,
            slots=self._settings.slots,
        )
        _LOG.info("worker ready", worker=self._settings.worker_id, models=models)

    async def _leave(self) -> None:
        """Say goodbye, so that nobody waits for this process. Where the database is away its leases lapse."""
        name, incarnation = self._settings.worker_id, self._settings.incarnation
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                given_back = await leave(self._db, worker_id=name, incarnation=incarnation)
        except (Unavailable, TimeoutError) as error:
            _LOG.warning("no goodbye said: the leases lapse", cause=str(error))
        else:
            _LOG.info("worker left", worker=name, chunks_given_back=given_back)

    async def _sync_for_ever(self, stop: asyncio.Event, feeder: Feeder, holdings: Holdings, watch: EngineWatch) -> None:
        """Poll: every second, soon after each commit, and often while there is room and work waits."""
        while not (stop.is_set() and (holdings.empty or self._overdue)):
            self._nudge.clear()
            began = self._clock()
            pause = _IDLE_SYNC_SECONDS
            try:
                if await self._sync(feeder, holdings, began, engine_up=watch.up):
                    pause = _HUNGRY_SYNC_SECONDS
                if feeder.speed.measure(began, feeder.finished_lines):
                    await self._teach(feeder, holdings)
            except Unavailable as error:
                _LOG.warning("sync failed", cause=str(error))
            await _rest(self._nudge, pause)
            await asyncio.sleep(max(0.0, _LEAST_SYNC_GAP_SECONDS - (self._clock() - began)))

    async def _sync(self, feeder: Feeder, holdings: Holdings, began: float, *, engine_up: bool) -> bool:
        """Report and obey; returns whether work waits that this worker has room for. Raises LeaseLost."""
        orders = await sync(self._db, self._report(feeder, holdings, engine_up=engine_up))
        if orders is None:
            raise LeaseLost("another process has taken this worker's name; stop one of the two")
        self._observer.synced(self._clock() - began)
        holdings.obey(orders, began)
        waiting = orders.work_waits or feeder.untried_lines > 0
        self._observer.load(in_flight=feeder.in_flight, lines_waiting=waiting, engine_up=engine_up)
        return orders.work_waits and feeder.in_flight < self._settings.slots

    def _report(self, feeder: Feeder, holdings: Holdings, *, engine_up: bool) -> Report:
        """Say how much more work is wanted: look-ahead in lines, beyond what is finished but not yet committed."""
        ready = engine_up and holdings.taking
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
        for model, tally in holdings.tallies.take().items():
            await learn_model(
                self._db,
                model,
                seconds_per_line=1.0 / feeder.speed.lines_per_second,
                bytes_per_token=tally.prompt_bytes / tally.input_tokens if tally.input_tokens else None,
            )

    async def _checkpoint_for_ever(self, holdings: Holdings) -> None:
        """Keep what is finished every so often, whatever happens to this process."""
        while True:
            await asyncio.sleep(self._settings.checkpoint_seconds)
            await holdings.checkpoint_all()

    async def _drain(self, stop: asyncio.Event, holdings: Holdings) -> None:
        """When told to stop: send nothing more, and give every chunk back with what is done of it.

        What is at the engine may end within the grace; the process ends in any case.
        """
        await stop.wait()
        self._nudge.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                await holdings.drain()
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
