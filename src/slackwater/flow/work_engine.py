"""Looks after the engine of one worker: is it there, does it get on, and what is to be done when it does neither.

::

    up ── /health fails ──► away ── ready again ──► up
     └─ requests are in, no answer and no token for a while: it hangs ──► revived, asked for a token, up again

``/health`` alone proves nothing: a server answers it whose engine has stood still for hours. So an engine that hung is
up again only when it has answered a request.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from slackwater.domain.errors import EngineError
from slackwater.flow.work_feed import Feeder
from slackwater.flow.work_holdings import Holdings
from slackwater.inference.protocol import Engine

_LOG: Final = structlog.get_logger("slackwater.work")
_AWAY_CHECK_SECONDS: Final = 0.5
_CANARY_SECONDS: Final = 30.0
_CANARIES: Final = (("/v1/completions", {"prompt": "a", "max_tokens": 1}), ("/v1/embeddings", {"input": "a"}))
"""The smallest requests there are; an engine refuses the one that its model is not made for."""
_REFUSED: Final = range(400, 500)


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchSettings:
    """How patient a worker is with its engine."""

    outage_seconds: float = 120.0
    """How long chunks are kept while the engine is away, before they are given back."""
    stall_seconds: float = 120.0
    """How long an engine may have requests and neither answer nor write a token."""
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
        suspected: Callable[[], None],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._feeder = feeder
        self._holdings = holdings
        self._settings = settings
        self._suspected = suspected
        self._changed = changed
        self._clock = clock
        self._doubt = asyncio.Event()
        self._away_since: float | None = None
        self._hung = False
        self._answers_seen = 0
        self._tokens_seen: int | None = None
        self._progress_at = clock()

    @property
    def up(self) -> bool:
        """Whether the engine takes requests, as far as is known."""
        return self._away_since is None

    def doubt(self) -> None:
        """Look at the engine now."""
        self._doubt.set()

    async def run(self) -> None:
        """Look every so often, at once when in doubt, and every half second while it is away."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.check_seconds if self.up else _AWAY_CHECK_SECONDS):
                    await self._doubt.wait()
            self._doubt.clear()
            if not await self._answers():
                await self._is_away()
            elif await self._stalls():
                await self._hangs()
            else:
                await self._is_up()

    async def _answers(self) -> bool:
        """Tell whether requests may be sent: one that hung must have answered one first."""
        if not await self._engine.ready():
            return False
        if self._hung:
            self._hung = not await self._answers_canary()
        return not self._hung

    async def _is_up(self) -> None:
        if self._away_since is not None:
            _LOG.info("engine is back", seconds=round(self._clock() - self._away_since, 1))
            self._away_since = None
            self._progress_at = self._clock()
            self._changed()
        if self._feeder.engine_lives():
            _LOG.warning("engine died, and is back already")
            await self._open_inquest()

    async def _is_away(self) -> None:
        blamed = self._feeder.engine_died()
        if self._away_since is None:
            _LOG.warning("engine is away")
            self._away_since = self._clock()
            self._changed()
        if blamed:
            await self._open_inquest()
        outage = self._clock() - self._away_since
        if outage > self._settings.outage_seconds and not self._holdings.empty:
            _LOG.warning("chunks given back: the engine stays away", seconds=round(outage))
            await self._holdings.give_back()

    async def _hangs(self) -> None:
        """Give up what is at the engine, and have it started anew where that is ours to do."""
        _LOG.error("engine hangs", seconds=self._settings.stall_seconds, in_flight=self._feeder.in_flight)
        self._hung = True
        self._away_since = self._clock()
        self._feeder.engine_hangs()
        self._changed()
        await self._engine.revive()
        await self._open_inquest()

    async def _open_inquest(self) -> None:
        """Keep who is suspect, so that it is known to whoever holds the chunks next, then have it tried."""
        await self._holdings.checkpoint_all()
        self._suspected()

    async def _stalls(self) -> bool:
        """Tell whether requests have been in for long while nothing was answered and no token read or written.

        Of an engine that does not count its tokens nothing can be told: one long answer looks the same.
        """
        if not self._feeder.in_flight or self._feeder.answers != self._answers_seen:
            self._answers_seen, self._progress_at = self._feeder.answers, self._clock()
            return False
        try:
            tokens = (await self._engine.load()).tokens_total
        except EngineError:
            return False
        if tokens is None or tokens != self._tokens_seen:
            self._tokens_seen, self._progress_at = tokens, self._clock()
            return False
        return self._clock() - self._progress_at > self._settings.stall_seconds

    async def _answers_canary(self) -> bool:
        """Tell whether the engine answers a request that it cannot refuse."""
        try:
            model = (await self._engine.models())[0].name
            for path, request in _CANARIES:
                body = msgspec.json.encode({"model": model, **request})
                reply = await self._engine.post(path, body, timeout_seconds=_CANARY_SECONDS)
                if reply.status not in _REFUSED:
                    return reply.status < _REFUSED.start
        except (EngineError, IndexError):
            return False
        return True  # It refuses both, so it can be neither told from a hanging one nor used as a reason to wait.
