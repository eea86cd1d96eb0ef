"""Which line goes to the engine next: retries that are due, then small chunks, then the rest in the order given."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from slackwater.domain.policy import EXPRESS_LINES
from slackwater.flow.chunk_run import ChunkRun

_TIMER_GRAIN_SECONDS: Final = 0.001
"""Timers of uvloop fire on whole milliseconds, so possibly this much early."""

Line = tuple[ChunkRun, int]
"""A line of a run, by its place in it."""


class LineQueue:
    """The lines of the chunks a feeder was given that are not at the engine.

    ``woken`` is called when a line was added; ``hungry`` when a chunk is found to have no untried line any more.
    """

    def __init__(self, *, woken: Callable[[], None], hungry: Callable[[], None]) -> None:
        self._woken = woken
        self._hungry = hungry
        self._chunks: deque[ChunkRun] = deque()
        """Those with untried lines, small ones first."""
        self._due: deque[Line] = deque()
        self._waiting: list[tuple[float, int, ChunkRun, int]] = []
        self._n_waiting = 0
        self._alone: deque[Line] = deque()
        self._held = self._closed = False

    @property
    def untried_lines(self) -> int:
        """Lines given but never sent."""
        return sum(run.untried for run in self._chunks)

    @property
    def retries_waiting(self) -> int:
        """Lines whose pause before another try is not over."""
        return len(self._waiting)

    @property
    def lines_alone(self) -> int:
        """Lines to be sent although the queue is held."""
        return len(self._alone)

    def add(self, run: ChunkRun) -> None:
        """Take a chunk: a small one goes before every large one."""
        small = run.lease.n_requests <= EXPRESS_LINES
        ahead = sum(other.lease.n_requests <= EXPRESS_LINES for other in self._chunks) if small else len(self._chunks)
        self._chunks.insert(ahead, run)
        self._woken()

    def remove(self, run: ChunkRun) -> None:
        """Give out no further line of a stopped chunk."""
        if run in self._chunks:
            self._chunks.remove(run)
        self._alone = deque(line for line in self._alone if line[0] is not run)

    def again(self, run: ChunkRun, place: int) -> None:
        """Give a line out again, before untried ones."""
        if not run.stopped:
            self._due.append((run, place))
            self._woken()

    def later(self, delay_seconds: float, run: ChunkRun, place: int) -> None:
        """Give a line out again after a pause."""
        loop = asyncio.get_running_loop()
        self._n_waiting += 1
        due = loop.time() + delay_seconds
        heapq.heappush(self._waiting, (due, self._n_waiting, run, place))
        loop.call_at(due, self._pop_due)

    def _pop_due(self) -> None:
        """Move the retries whose pause is over to the front."""
        now = asyncio.get_running_loop().time() + _TIMER_GRAIN_SECONDS
        while self._waiting and self._waiting[0][0] <= now:
            _, _, run, place = heapq.heappop(self._waiting)
            self.again(run, place)

    def alone(self, run: ChunkRun, place: int) -> None:
        """Give a line out although the queue is held."""
        if not run.stopped:
            self._alone.append((run, place))
            self._woken()

    def take_alone(self) -> list[Line]:
        """Take back the lines to be sent alone that were not given out yet."""
        lines = list(self._alone)
        self._alone.clear()
        return lines

    @property
    def held(self) -> bool:
        """Whether only lines to be sent alone are given out."""
        return self._held

    @held.setter
    def held(self, held: bool) -> None:
        self._held = held
        self._woken()

    def close(self) -> None:
        """Give nothing out any more."""
        self._closed = True

    def next(self) -> Line | None:
        """Return the line to send next; None while there is none."""
        if self._closed:
            return None
        if self._held:
            return self._alone.popleft() if self._alone else None
        while self._due:
            run, place = self._due.popleft()
            if not run.stopped:
                return run, place
        while self._chunks:
            run = self._chunks[0]
            untried = run.take()
            if untried is not None:
                return run, untried
            self._chunks.popleft()
            self._hungry()
        return None
