"""The consumers of a feeder: a task for each request that may be at the engine, asleep while nothing waits for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Final

_BURST_LINES: Final = 200
"""After so many lines the consumers let others run: heartbeats must not starve."""


class ConsumerPool:
    """Consumers that wake each other one by one, so that no more of them run than can be of use."""

    def __init__(self) -> None:
        self._consumers: list[asyncio.Task[None]] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False
        self._burst = 0
        self.closing = False
        """Set when the consumers are being ended."""

    def start(self, count: int, consume: Callable[[], Coroutine[None, None, None]]) -> None:
        """Start so many consumers; each runs for ever."""
        self._consumers = [asyncio.create_task(consume(), name=f"feed-{n}") for n in range(count)]

    async def watch(self) -> None:
        """End with the error of the first consumer that fails, and never otherwise: each takes a place with it."""
        done, _ = await asyncio.wait(self._consumers, return_when=asyncio.FIRST_COMPLETED)
        for consumer in done:
            consumer.result()

    async def close(self) -> None:
        """End the consumers and what they do."""
        self.closing = True
        for task in self._consumers:
            task.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)
        self._consumers = []

    def wake(self) -> None:
        """Wake one idle consumer; it wakes the next when it takes a line."""
        if self._waking:
            return
        while self._idle:
            sleeper = self._idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                self._waking = True
                return

    def wake_next(self) -> None:
        """Wake another one where any sleeps: called by one that has found something to do."""
        if self._idle:
            self.wake()

    async def sleep(self) -> None:
        """Wait idle until woken."""
        sleeper = asyncio.get_running_loop().create_future()
        self._idle.append(sleeper)
        try:
            await sleeper
        finally:
            if sleeper.done():
                self._waking = False

    def ends_burst(self) -> bool:
        """Count one line; tells whether whoever ran it has to let others run now. No coroutine: it is asked a line."""
        self._burst += 1
        return self._burst >= _BURST_LINES

    async def let_others_run(self) -> None:
        """Yield: the consumer that ends a burst goes on in the loop's next turn, the others wait to be woken by it.

        An engine that answers at once needs one consumer, not a turn of the loop for each of hundreds.
        """
        if self._burst > _BURST_LINES:
            await self.sleep()
            return
        await asyncio.sleep(0)
        self._burst = 0
