"""The inquest after an engine's death: its suspects run apart from all other lines until one is found, or none.

The verdicts are ``domain/suspects``; here is what they are drawn from. Before each trial the chunks say in the database
who stands it: a worker that dies with its engine leaves the narrowed suspects to whoever holds the chunk next.
"""

import asyncio
from typing import Final

import structlog

from slackwater.domain.line_errors import ENGINE_KILLED
from slackwater.domain.suspects import Trial, next_trial, verdict
from slackwater.flow.work_feed import Feeder
from slackwater.flow.work_holdings import Holdings
from slackwater.flow.work_queue import Line

_LOG: Final = structlog.get_logger("slackwater.work")


class Inquest:
    """Tries the suspects that a worker holds whenever there are any."""

    def __init__(self, feeder: Feeder, holdings: Holdings) -> None:
        self._feeder = feeder
        self._holdings = holdings
        self._suspected = asyncio.Event()

    def open(self) -> None:
        """Hear that there are suspects, or may be."""
        self._suspected.set()

    async def run(self) -> None:
        """Try suspects for ever."""
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            if not self._holdings.suspects():
                continue
            await self._feeder.hold()
            try:
                await self._try_all()
            finally:
                self._feeder.release()

    async def _try_all(self) -> None:
        """Hold one trial after the other, until nobody held is suspected any more."""
        half = True
        while self._holdings.suspects():
            # Who is on trial may be blamed for what happens next, so that it begins only when it can.
            await self._feeder.engine_ready()
            suspects = self._holdings.suspects()
            if not suspects:
                break
            trial = next_trial(suspects, half=half)
            _LOG.info("suspects run apart", lines=len(trial.running), waiting=len(trial.waiting))
            await self._hold(trial)
            half = self._conclude(trial)
        # Who stood the last trial is not to be blamed for whatever ends this worker later.
        await self._holdings.checkpoint_all()

    async def _hold(self, trial: Trial[Line]) -> None:
        """Run the lines of one trial with nothing else running."""
        for run, place in trial.running:
            run.suspects.discard(place)
            run.on_trial.add(place)
        await self._holdings.checkpoint_all()
        await self._feeder.run_alone(trial.running)
        for run, place in trial.running:
            run.on_trial.discard(place)

    def _conclude(self, trial: Trial[Line]) -> bool:
        """Act on what a trial showed; returns whether the engine died in it."""
        killed = [(run, place) for run, place in trial.running if place in run.suspects]
        outcome = verdict(trial, killed)
        for run, place in outcome.cleared:
            run.suspects.discard(place)
            self._feeder.again(run, place)
        if outcome.guilty is not None:
            run, place = outcome.guilty
            run.suspects.discard(place)
            _LOG.warning("a line kills the engine", batch_id=run.lease.batch_id, chunk=run.lease.seq, place=place)
            self._feeder.end(run, place, ENGINE_KILLED)
        return bool(killed)
