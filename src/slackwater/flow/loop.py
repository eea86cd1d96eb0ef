"""The loop around every stage: call ``*_once`` for ever, at once while there is work, after a rest when there is none.

This is the one place that catches every error: a stage that fails is logged, rests longer each time, and is tried
again, so that one broken unit of work never ends a process or starves the other stages.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from slackwater.domain.errors import LeaseLost, Unavailable
from slackwater.metrics import Stage as StageName
from slackwater.metrics import StageObserver, StageOutcome

_LOG: Final = structlog.get_logger("slackwater.loop")
_LONGEST_REST_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage as the loop sees it."""

    name: StageName
    once: Callable[[], Awaitable[bool]]
    """Do one unit of work; return whether there was any."""
    rest_seconds: float
    """How long to wait after finding nothing."""


async def run_stage(stage: Stage, *, stop: asyncio.Event, observer: StageObserver) -> None:
    """Run a stage until ``stop`` is set."""
    failures = 0
    while not stop.is_set():
        started = observer.clock()
        outcome = await _one(stage, failures)
        observer.count(outcome, seconds=observer.clock() - started)
        failures = failures + 1 if outcome == "error" else 0
        if outcome in {"done", "lost"}:
            await asyncio.sleep(0)
        else:
            await _rest(stop, _rest_seconds(stage.rest_seconds, failures))


async def _one(stage: Stage, failures: int) -> StageOutcome:
    """Do one unit of work and say how it ended; ``failures`` came before it in a row."""
    try:
        return "done" if await stage.once() else "idle"
    except LeaseLost as lost:
        _LOG.warning("stage lost its claim", stage=stage.name, cause=str(lost))
        return "lost"
    except Unavailable as error:
        # A part that is down says nothing new in a stack trace, and would say it every second.
        _LOG.warning("stage waits", stage=stage.name, cause=str(error), failures=failures + 1)
    except Exception:
        _LOG.exception("stage failed", stage=stage.name, failures=failures + 1)
    return "error"


def _rest_seconds(rest_seconds: float, failures: int) -> float:
    """Double the rest with every failure in a row, up to a bound."""
    if failures == 0:
        return rest_seconds
    return min(_LONGEST_REST_SECONDS, max(rest_seconds, 0.2) * 2.0 ** min(failures, 10))


async def _rest(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but not past a stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
