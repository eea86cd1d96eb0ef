"""Answers that may say more of the engine than of the line: filed only when the engine has been put to the proof.

::

    the engine proves that it is well     the line's own trouble
    it does not, and does later           nobody's: the line is spared
    it is dead                            nobody's: what it had taken in is suspect
"""

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

    number: int
    spell: int
    """The engine's spell in which the request was sent."""
    run: ChunkRun
    place: int
    answer: Reply | EngineError


class Doubts:
    """Those not filed yet."""

    def __init__(self) -> None:
        self._doubtful: list[Doubtful] = []
        self._numbered = 0
        self._outlived = False
        self.beside: Sent = {}
        """What was at the engine when the first of these came."""
        self.excused = False
        """Set while the engine has failed the proof."""
        self.spell = 0
        """Counts the engine's spells of being well: what was sent in an earlier one may have met what ended it."""

    def __len__(self) -> int:
        return len(self._doubtful)

    @property
    def about(self) -> ChunkRun | None:
        """The chunk of the first of them."""
        return self._doubtful[0].run if self._doubtful else None

    @property
    def mark(self) -> int:
        """The number of the newest, which a proof that is asked for now covers."""
        return self._numbered

    def add(self, run: ChunkRun, place: int, answer: Reply | EngineError, *, spell: int, sent: Sent) -> None:
        """Keep one back, with what was at the engine besides; ``spell`` is the one in which the request was sent."""
        if not self._doubtful:
            self.beside, self._outlived = dict(sent), False
        self._numbered += 1
        self._doubtful.append(Doubtful(self._numbered, spell, run, place, answer))

    def answered(self, task: "asyncio.Task[object]", line: Line) -> None:
        """Hear of an answer beyond doubt: the engine outlived the first of these if it was at work on it then."""
        self._outlived |= self.beside.get(task) == line

    def take(self, mark: int | None = None) -> list[Doubtful]:
        """Return all up to a mark, to be filed: but for those of chunks that stopped."""
        taken = [doubtful for doubtful in self._doubtful if mark is None or doubtful.number <= mark]
        self._doubtful = self._doubtful[len(taken) :]
        if not self._doubtful:
            self.beside = {}
        return [doubtful for doubtful in taken if not doubtful.run.stopped]

    def drop(self, run: ChunkRun) -> None:
        """Forget those of a chunk that stops."""
        self._doubtful = [doubtful for doubtful in self._doubtful if doubtful.run is not run]
        if not self._doubtful:
            self.beside = {}

    def everything_broke(self, sent: Sent, *, at_least: int) -> bool:
        """Tell whether so many requests broke off, and none beside them was answered or is still at the engine.

        Then the engine died, even if it is back already.
        """
        broken = sum(isinstance(doubtful.answer, EngineBroke) for doubtful in self._doubtful)
        if broken < at_least or self._outlived:
            return False
        return not any(sent.get(task) == line for task, line in self.beside.items())

    def blame_engine(self, queue: LineQueue) -> bool:
        """File all as nobody's fault, for an engine that died; what it had taken in is suspect.

        What it had not goes to it again. Returns whether any line became a suspect.
        """
        refused: list[Line] = []
        blamed = self.excused = False
        self.spell += 1
        for _, _, run, place, answer in self.take():
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
