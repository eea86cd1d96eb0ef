"""Looks after the engine of one worker: is it there, does it get on, and what is to be done when it does neither.

::

    up ─┬─ /health fails ─────────────────────────────────────────────► away ─┐
        ├─ an answer is in doubt, or no line ends for long,                   ├─ it answers a request of ours ──► up
        │  and it does not answer a request of ours ──────────────────► ill  ─┤
        └─ requests are in, no answer and no token for long ──────────► hung ─┘

``/health`` alone proves nothing: a server answers it whose engine has stood still for hours, and one that has lost its
model. So an engine is up again only when it has answered a request (``work_proof``), and nothing is held against a line
before. Meanwhile the worker takes no leases; after a while it gives back those it has.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import structlog

from slackwater.domain.proofs import Full, Ill, Silent, Well
from slackwater.flow.work_feed import Feeder
from slackwater.flow.work_holdings import Holdings
from slackwater.flow.work_observers import EngineObserver
from slackwater.flow.work_progress import Progress
from slackwater.flow.work_proof import Asked, ask_for_proof
from slackwater.inference.protocol import Engine
from slackwater.metrics import EngineOutage

_LOG: Final = structlog.get_logger("slackwater.work")
_DOWN_CHECK_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 60.0
"""A full engine that asks for more is asked again after this long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchSettings:
    """How patient a worker is with its engine."""

    outage_seconds: float = 120.0
    """How long chunks are kept while the engine is down, before they are given back."""
    stall_seconds: float = 120.0
    """How long an engine may get on with nothing: it then hangs, or has to prove itself. Also how long it may be ill,
    before it is started anew where that is ours to do."""
    check_seconds: float = 2.0
    """How often it is looked at while nothing is in doubt."""


class EngineWatch:
    """Keeps the feeder's gate as the engine's state is. ``clock`` is monotonic, in seconds.

    ``suspected`` is called when lines became suspects, ``changed`` when the database should be told soon.
    """

    def __init__(
        self,
        engine: Engine,
        feeder: Feeder,
        holdings: Holdings,
        *,
        settings: WatchSettings,
        observer: EngineObserver,
        suspected: Callable[[], None],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._feeder = feeder
        self._holdings = holdings
        self._settings = settings
        self._observer = observer
        self._suspected = suspected
        self._changed = changed
        self._clock = clock
        self._progress = Progress(engine, feeder, clock=clock)
        self._doubt = asyncio.Event()
        self._down_since: float | None = None
        self._ill_since: float | None = None
        self._asked: Asked | None = None
        """What was in doubt the last time."""
        self._not_before = 0.0
        """When a full engine may be asked again."""

    @property
    def up(self) -> bool:
        """Whether the engine takes requests, as far as is known."""
        return self._down_since is None

    def doubt(self) -> None:
        """Look at the engine now."""
        self._doubt.set()

    async def run(self) -> None:
        """Look every so often, at once when in doubt, and every half second while it is down."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.check_seconds if self.up else _DOWN_CHECK_SECONDS):
                    await self._doubt.wait()
            self._doubt.clear()
            await self._look()

    async def _look(self) -> None:
        if not await self._engine.ready():
            await self._is_away()
            return
        await self._progress.look()
        patience = self._settings.stall_seconds
        if self._progress.silent_seconds > patience and (self._progress.counts_tokens or not self.up):
            await self._hangs()
        elif self.up and not self._feeder.in_doubt and self._progress.fruitless_seconds <= patience:
            # Lines may be kept back although nothing is in doubt any more: those that were have been given back.
            await self._is_up(self._feeder.doubts_mark)
        elif self._clock() >= self._not_before:
            await self._put_to_the_proof()

    async def _put_to_the_proof(self) -> None:
        run = self._feeder.in_doubt
        if run is not None:
            self._asked = Asked(run.lease.model, run.lease.endpoint)
        mark, finished = self._feeder.doubts_mark, self._feeder.finished_lines
        health = await ask_for_proof(self._engine, self._asked)
        match health:
            case Well():
                await self._is_up(mark)
            case Silent() if self._feeder.finished_lines != finished:
                # Busy: it has answered others meanwhile.
                await self._is_up(mark)
            case Full(retry_after_seconds=pause):
                self._not_before = self._clock() + min(pause, _LONGEST_PAUSE_SECONDS)
                await self._is_ill("it is full for everybody", anew=False)
            case Ill(cause=cause):
                await self._is_ill(cause, anew=True)
            case Silent():
                await self._is_ill("it does not answer", anew=True)
            case _:
                assert_never(health)

    async def _is_up(self, mark: int) -> None:
        if self._down_since is not None:
            _LOG.info("engine is well", seconds=round(self._clock() - self._down_since, 1))
            self._changed()
        self._down_since = self._ill_since = None
        if self._progress.fruitless_seconds > self._settings.stall_seconds:
            self._progress.begin()
        died = self._feeder.engine_lives(mark)
        if self._feeder.in_doubt:
            self.doubt()  # Of what came after the proof was asked for.
        if died:
            _LOG.warning("engine died, and is back already")
            self._observer.outage("away")
            await self._open_inquest()

    async def _is_away(self) -> None:
        self._ill_since = None
        self._progress.begin()
        blamed = self._feeder.engine_died()
        self._goes_down("away", "it cannot be reached, or its health page says so")
        if blamed:
            await self._open_inquest()
        await self._give_back_in_time()

    async def _is_ill(self, cause: str, *, anew: bool) -> None:
        """Keep lines back. With ``anew``, have it started anew after a while, where that is ours to do."""
        self._feeder.engine_ill()
        self._goes_down("ill", cause)
        now = self._clock()
        self._ill_since = (self._ill_since or now) if anew else None
        if self._ill_since is not None and now - self._ill_since > self._settings.stall_seconds:
            self._ill_since = None
            await self._engine.revive()
        await self._give_back_in_time()

    async def _hangs(self) -> None:
        """Give up what is at the engine, and have it started anew where that is ours to do."""
        self._goes_down("hung", f"{self._feeder.in_flight} requests, no answer and no token")
        self._feeder.engine_hangs()
        await self._engine.revive()
        await self._open_inquest()

    def _goes_down(self, outage: EngineOutage, cause: str) -> None:
        if self._down_since is None:
            _LOG.warning("engine is down", state=outage, cause=cause)
            self._down_since = self._clock()
            self._observer.outage(outage)
            self._changed()

    async def _give_back_in_time(self) -> None:
        assert self._down_since is not None
        outage = self._clock() - self._down_since
        if outage > self._settings.outage_seconds and not self._holdings.empty:
            _LOG.warning("chunks given back: the engine stays down", seconds=round(outage))
            await self._holdings.give_back()

    async def _open_inquest(self) -> None:
        """Keep who is suspect, so that it is known to whoever holds the chunks next, then have it tried."""
        await self._holdings.checkpoint_all()
        self._suspected()
