"""Tasks on the side of a loop: none is lost, each failure is logged, and all have ended when their owner has."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

import structlog

_LOG: Final = structlog.get_logger("slackwater.work")


class SideTasks:
    """A set of running tasks. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run something on the side; its failure is logged, never lost."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    async def settle(self, seconds: float) -> bool:
        """Wait until every task has ended, and end those that take longer; returns whether none had to be."""
        until = self._clock() + seconds
        while self._tasks and (left := until - self._clock()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        late = list(self._tasks)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("chunk task failed", exc_info=error)
