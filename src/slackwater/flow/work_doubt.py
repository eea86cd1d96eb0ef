"""Answers that may mean that the engine is dead: filed only when somebody has looked at it."""

import asyncio
from typing import NamedTuple

from slackwater.domain.errors import EngineBroke, EngineError
from slackwater.domain.outcomes import is_suspect
from slackwater.domain.replies import Reply
from slackwater.flow.chunk_run import ChunkRun
from slackwater.flow.work_queue import Line, LineQueue

Sent = dict[asyncio.Task[object], Line]
"""What is at the engine, by the task that sent it."""


class Doubtful(NamedTuple):
    """One such answer to one line."""

    run: ChunkRun
    place: int
    answer: Reply | EngineError


class Doubts:
    """Those not filed yet."""

    def __init__(self) -> None:
        self._doubtful: list[Doubtful] = []
        self._beside: Sent = {}
        """What was at the engine when the first of these came."""

    def __len__(self) -> int:
        return len(self._doubtful)

    def add(self, doubtful: Doubtful, sent: Sent) -> None:
        """Keep one back, with what was at the engine besides."""
        if not self._doubtful:
            self._beside = dict(sent)
        self._doubtful.append(doubtful)

    def take(self) -> list[Doubtful]:
        """Return all, to be filed: but for those of chunks that stopped."""
        taken, self._doubtful = self._doubtful, []
        self._beside = {}
        return [doubtful for doubtful in taken if not doubtful.run.stopped]

    def drop(self, run: ChunkRun) -> None:
        """Forget those of a chunk that stops."""
        self._doubtful = [doubtful for doubtful in self._doubtful if doubtful.run is not run]

    def everything_broke(self, sent: Sent, *, at_least: int) -> bool:
        """Tell whether so many requests broke off, and nothing that was beside them is still at the engine.

        Then the engine died, even if it is back already.
        """
        broken = sum(isinstance(doubtful.answer, EngineBroke) for doubtful in self._doubtful)
        return broken >= at_least and not any(sent.get(task) == line for task, line in self._beside.items())

    def blame_engine(self, queue: LineQueue) -> bool:
        """File all as nobody's fault, for an engine that died; what it had taken in is suspect.

        What it had not goes to it again. Returns whether any line became a suspect.
        """
        refused: list[Line] = []
        blamed = False
        for run, place, answer in self.take():
            if is_suspect(answer):
                run.suspects.add(place)
                blamed = True
            else:
                refused.append((run, place))
        if blamed:
            # The trial has its outcome: nobody waits for the engine to come back only to hear it.
            refused.extend(queue.take_alone())
        for run, place in refused:
            if place in run.on_trial and not blamed:
                queue.alone(run, place)
            else:
                queue.again(run, place)
        return blamed
