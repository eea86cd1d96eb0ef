"""The loop around every stage: call ``*_once`` for ever, at once while there is work, after a rest when there is none.

This is the one place that catches every error: a stage that fails is logged, rests longer each time, and is tried
again, so that one broken unit of work never ends a process or starves the other stages.

A stage that is told to stop ends its unit of work, or has it cancelled after a few seconds.
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
_LONGEST_WAIT_SECONDS: Final = 2.0
"""The same while a part is away: work has to go on soon after it is back."""
_LAST_SECONDS: Final = 5.0
"""How long a unit of work may still take once the process is told to stop."""
_Outcome = tuple[StageOutcome, float]
"""How a unit of work ended, and the longest rest after it."""


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
    working = asyncio.create_task(_repeat(stage, stop, observer), name=stage.name)
    breaking = asyncio.create_task(_break_off(stage, working, stop))
    try:
        await asyncio.wait({working})
    finally:
        working.cancel()
        breaking.cancel()
        await asyncio.gather(working, breaking, return_exceptions=True)
    if not working.cancelled():
        working.result()


async def _break_off(stage: Stage, working: "asyncio.Task[None]", stop: asyncio.Event) -> None:
    """Cancel a stage that works on for too long after it was told to stop."""
    await stop.wait()
    await asyncio.wait({working}, timeout=_LAST_SECONDS)
    if working.cancel():
        _LOG.warning("stage broken off: it was told to stop", stage=stage.name)


async def _repeat(stage: Stage, stop: asyncio.Event, observer: StageObserver) -> None:
    """Do one unit of work after the other until ``stop`` is set."""
    failures = 0
    while not stop.is_set():
        started = observer.clock()
        outcome, longest_rest = await _one(stage, failures)
        observer.count(outcome, seconds=observer.clock() - started)
        failures = failures + 1 if outcome == "error" else 0
        if outcome in {"done", "lost"}:
            await asyncio.sleep(0)
        else:
            await _rest(stop, _rest_seconds(stage.rest_seconds, failures, longest_rest))


async def _one(stage: Stage, failures: int) -> _Outcome:
    """Do one unit of work; ``failures`` came before it in a row."""
    try:
        return "done" if await stage.once() else "idle", _LONGEST_REST_SECONDS
    except LeaseLost as lost:
        _LOG.warning("stage lost its claim", stage=stage.name, cause=str(lost))
        return "lost", _LONGEST_REST_SECONDS
    except Unavailable as error:
        # A part that is down says nothing new in a stack trace, and would say it every second.
        _LOG.warning("stage waits", stage=stage.name, cause=str(error), failures=failures + 1)
        return "error", _LONGEST_WAIT_SECONDS
    except Exception:
        _LOG.exception("stage failed", stage=stage.name, failures=failures + 1)
        return "error", _LONGEST_REST_SECONDS


def _rest_seconds(rest_seconds: float, failures: int, longest: float) -> float:
    """Double the rest with every failure in a row, up to a bound."""
    if failures == 0:
        return rest_seconds
    return max(rest_seconds, min(longest, max(rest_seconds, 0.2) * 2.0 ** min(failures, 10)))


async def _rest(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but not past a stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
