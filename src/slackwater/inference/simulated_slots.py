"""N slots and one queue: never more than N pieces of work at once, and a slot refilled in the moment it falls free."""

import asyncio
from collections import deque
from typing import Final


class Slots:
    """Work that takes a slot for a known time, in the order it came. Belongs to one event loop."""

    def __init__(self, count: int) -> None:
        """Make ``count`` free slots. Raises ValueError for less than one."""
        if count < 1:
            raise ValueError("an engine needs at least one slot")
        self.count: Final = count
        self.running = 0
        self.peak = 0
        """The most that ever ran at once."""
        self._timers: dict[asyncio.Future[None], asyncio.TimerHandle | None] = {}
        self._queue: deque[tuple[asyncio.Future[None], float | None]] = deque()

    @property
    def waiting(self) -> int:
        """How much waits for a slot."""
        return sum(1 for work, _ in self._queue if not work.done())

    async def hold(self, seconds: float | None) -> None:
        """Wait for a slot and hold it for ``seconds``, None for ever. Cancelling gives the slot, or the place, back."""
        work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.running < self.count:
            self._start(work, seconds)
        else:
            self._queue.append((work, seconds))
        try:
            await work
        finally:
            # Ended by its timer, all is done already; cancelled or broken off, the slot is free from here on.
            self._leave(work)

    def break_off(self, error: Exception) -> None:
        """End all work, running and waiting, with this error."""
        waiting = [work for work, _ in self._queue]
        self._queue.clear()
        for work in [*self._timers, *waiting]:
            if not work.done():
                work.set_exception(error)

    def _start(self, work: asyncio.Future[None], seconds: float | None) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)
        loop = work.get_loop()
        self._timers[work] = None if seconds is None else loop.call_later(seconds, self._end, work)

    def _end(self, work: asyncio.Future[None]) -> None:
        self._leave(work)
        if not work.done():
            work.set_result(None)

    def _leave(self, work: asyncio.Future[None]) -> None:
        if work not in self._timers:
            return
        timer = self._timers.pop(work)
        if timer is not None:
            timer.cancel()
        self.running -= 1
        while self._queue and self.running < self.count:
            following, seconds = self._queue.popleft()
            if not following.done():
                self._start(following, seconds)
