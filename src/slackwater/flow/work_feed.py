"""The feeder: keeps a fixed number of requests at the engine, across chunk boundaries, for as long as there are lines.

In flight = the engine's slots plus a small surplus, so that its queue is never empty and never grows. A pool of
consumers takes the next line of the first chunk that has one; a line that must wait for its next try frees its place
meanwhile. Small chunks (the express slot) go before large ones.

Stopping a chunk cancels the calls of its lines that are at the engine, which frees the engine's slots.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from slackwater.domain.errors import EngineError, EngineUnreachable
from slackwater.domain.line_errors import LineError
from slackwater.domain.outcomes import Dead, Released, Retry, RetryPolicy, failure, success
from slackwater.domain.policy import EXPRESS_LINES
from slackwater.domain.replies import Reply
from slackwater.flow.work_chunk import ChunkRun
from slackwater.flow.work_speed import Speed
from slackwater.inference.protocol import Engine

_BURST_LINES: Final = 200
"""After so many lines the consumers let others run: heartbeats must not starve."""
_TIMER_GRAIN_SECONDS: Final = 0.001
"""Timers of uvloop fire on whole milliseconds, so possibly this much early."""


class FeedObserver(Protocol):
    """Told what the metrics need."""

    def answered(self, seconds: float) -> None:
        """One request was answered, or not, after so long."""
        ...

    def retried(self, error: LineError) -> None:
        """One line waits for another try, because of this."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedSettings:
    """How the engine is fed."""

    in_flight: int
    """Requests at the engine at once."""
    request_timeout_seconds: float
    retries: RetryPolicy


class Feeder:
    """Runs the lines of the chunks it is given.

    ``completed`` is called once for each chunk whose lines have all ended, ``hungry`` when a chunk is found to have no
    untried line any more, ``unreachable`` for each request that found no engine. ``clock`` is monotonic, in seconds;
    ``jitter`` gives numbers in [0, 1).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        settings: FeedSettings,
        observer: FeedObserver,
        completed: Callable[[ChunkRun], None],
        hungry: Callable[[], None],
        unreachable: Callable[[], None],
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._observer = observer
        self._completed = completed
        self._hungry = hungry
        self._unreachable = unreachable
        self._clock = clock
        self._jitter = jitter
        self._chunks: deque[ChunkRun] = deque()
        """Those with untried lines, small ones first."""
        self._due: deque[tuple[ChunkRun, int]] = deque()
        self._waiting: list[tuple[float, int, ChunkRun, int]] = []
        self._n_waiting = 0
        self._idle: deque[asyncio.Future[None]] = deque()
        self._burst = 0
        self._closing = False
        self._waking = False
        self._engine_up = asyncio.Event()
        self._engine_up.set()
        self._consumers: list[asyncio.Task[None]] = []
        self.in_flight = 0
        self.speed = Speed()
        self.finished_lines = 0
        """Lines ended since the start, for measuring speed."""

    def start(self) -> None:
        """Start the consumers."""
        self._consumers = [
            asyncio.create_task(self._consume(), name=f"feed-{n}") for n in range(self._settings.in_flight)
        ]

    async def watch(self) -> None:
        """End with the error of the first consumer that fails, and never otherwise: each takes a place with it."""
        done, _ = await asyncio.wait(self._consumers, return_when=asyncio.FIRST_COMPLETED)
        for consumer in done:
            consumer.result()

    async def close(self) -> None:
        """End the consumers; what is at the engine is aborted."""
        self._closing = True
        for task in self._consumers:
            task.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)
        self._consumers = []

    def open_gate(self) -> None:
        """Let lines go to the engine."""
        self._engine_up.set()

    def shut_gate(self) -> None:
        """Keep lines back while the engine is away; waiting costs them nothing."""
        self._engine_up.clear()

    @property
    def untried_lines(self) -> int:
        """Lines given but never sent."""
        return sum(run.untried for run in self._chunks)

    def add(self, run: ChunkRun) -> None:
        """Take a chunk; its lines run as places get free."""
        small = run.lease.n_requests <= EXPRESS_LINES
        ahead = sum(other.lease.n_requests <= EXPRESS_LINES for other in self._chunks) if small else len(self._chunks)
        self._chunks.insert(ahead, run)
        self.speed.saturated(self._clock(), self.finished_lines)
        self._wake()

    def stop(self, run: ChunkRun) -> None:
        """Run no further line of a chunk and abort those at the engine. The caller closes what is unrun afterwards."""
        run.stopped = True
        for task in tuple(run.active):
            task.cancel()
        if run in self._chunks:
            self._chunks.remove(run)

    def _wake(self) -> None:
        """Wake one idle consumer; it wakes the next when it takes a line, so that no more run than can be of use."""
        if self._waking:
            return
        while self._idle:
            sleeper = self._idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                self._waking = True
                return

    async def _sleep(self) -> None:
        """Wait idle until woken."""
        sleeper = asyncio.get_running_loop().create_future()
        self._idle.append(sleeper)
        try:
            await sleeper
        finally:
            if sleeper.done():
                self._waking = False

    def _next(self) -> tuple[ChunkRun, int] | None:
        """Return the next line to send: retries that are due, then small chunks, then the rest in order."""
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
        self.speed.ran_dry(self._clock(), self.finished_lines)
        return None

    async def _consume(self) -> None:
        """Send one line after the other, for ever."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            if not self._engine_up.is_set():
                await self._engine_up.wait()
            job = self._next()
            if job is None:
                await self._sleep()
                continue
            if self._idle:
                self._wake()
            await self._send(*job, task)
            # A consumer that remembered a chunk in its sleep would keep all its results.
            del job
            self._burst += 1
            if self._burst >= _BURST_LINES:
                await self._let_others_run()

    async def _let_others_run(self) -> None:
        """Yield: the consumer that ends a burst goes on in the loop's next turn, the others wait to be woken by it.

        An engine that answers at once needs one consumer, not a turn of the loop for each of hundreds.
        """
        if self._burst > _BURST_LINES:
            await self._sleep()
            return
        await asyncio.sleep(0)
        self._burst = 0

    async def _send(self, run: ChunkRun, place: int, task: "asyncio.Task[object]") -> None:
        """Make one attempt at one line and file what came of it; a chunk's stop ends the attempt, not the consumer."""
        answer: Reply | EngineError
        run.active[task] = place
        self.in_flight += 1
        sent = self._clock()
        try:
            answer = await self._engine.post(
                run.lease.endpoint, run.body(place), timeout_seconds=self._settings.request_timeout_seconds
            )
        except EngineError as error:
            answer = error
        except asyncio.CancelledError:
            if not run.stopped or self._closing:
                raise
            task.uncancel()
            return
        finally:
            self.in_flight -= 1
            del run.active[task]
        self._observer.answered(self._clock() - sent)
        self._file(run, place, answer)
        if run.complete and not run.stopped:
            self._completed(run)

    def _file(self, run: ChunkRun, place: int, answer: Reply | EngineError) -> None:
        """File what one attempt came to."""
        done = success(answer)
        if done is not None:
            run.succeed(place, done)
            self.finished_lines += 1
            return
        if isinstance(answer, EngineUnreachable):
            self._unreachable()
        outcome = failure(answer, policy=self._settings.retries, jitter=self._jitter(), attempts=run.attempts(place))
        match outcome:
            case Dead(error=line_error):
                run.fail(place, line_error)
                self.finished_lines += 1
            case Retry(delay_seconds=delay, error=line_error):
                run.tried(place, run.attempts(place).after(outcome))
                self._observer.retried(line_error)
                self._later(delay, run, place)
            case Released(error=line_error) if self._engine_up.is_set():
                # The engine is there for others: it is this line that never gets its answer through.
                run.fail(place, line_error)
                self.finished_lines += 1
            case Released():
                # The engine has been away for long. The line keeps its place: the worker gives the chunk back.
                self._later(self._settings.retries.longest_pause_seconds, run, place)

    def _later(self, delay_seconds: float, run: ChunkRun, place: int) -> None:
        """Send a line again after a pause, without holding a place meanwhile."""
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
            if not run.stopped:
                self._due.append((run, place))
                self._wake()
