"""The feeder: keeps a fixed number of requests at the engine, across chunk boundaries, for as long as there are lines.

In flight = the engine's slots plus a small surplus, so that its queue is never empty and never grows. A pool of
consumers takes the next line of the first chunk that has one; a line that must wait for its next try frees its place
meanwhile. Small chunks (the express slot) go before large ones.

Stopping a chunk cancels the calls of its lines that are at the engine, which frees the engine's slots.

An answer that may say more of the engine than of the line (``domain/outcomes.is_doubtful``) is filed only when somebody
has put the engine to the proof (``work_doubt``): :meth:`Feeder.engine_lives` files it as the line's own trouble, unless
:meth:`Feeder.engine_ill` came before, :meth:`Feeder.engine_died` as nobody's, and makes the line a suspect where the
engine had taken it in. Suspects run apart from all others (``work_inquest``).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from slackwater.domain.errors import EngineError
from slackwater.domain.line_errors import LineError
from slackwater.domain.outcomes import RetryPolicy
from slackwater.domain.replies import Reply
from slackwater.flow.chunk_run import ChunkRun
from slackwater.flow.work_answers import Answers
from slackwater.flow.work_doubt import Sent
from slackwater.flow.work_observers import FeedObserver
from slackwater.flow.work_pool import ConsumerPool
from slackwater.flow.work_queue import Line, LineQueue
from slackwater.flow.work_speed import Speed
from slackwater.inference.protocol import Engine


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
    untried line any more, ``doubted`` for each answer that puts the engine in doubt. ``served`` are the names that the
    engine may give its model in an answer, besides the one that the line names. ``clock`` is monotonic, in seconds;
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
        doubted: Callable[[], None],
        served: Collection[str] = (),
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._observer = observer
        self._doubted = doubted
        self._clock = clock
        self._pool = ConsumerPool()
        self._queue = LineQueue(woken=self._pool.wake, hungry=hungry)
        self._answers = Answers(
            self._queue,
            retries=settings.retries,
            observer=observer,
            completed=completed,
            served=frozenset(served),
            jitter=jitter,
        )
        self._sent: Sent = {}
        """What is at the engine now, by the task that sent it."""
        self._engine_up = asyncio.Event()
        self._engine_up.set()
        self._calm = asyncio.Event()
        """Set when something happened that a wait for quiet may end with."""
        self.speed = Speed()

    def start(self) -> None:
        """Start the consumers."""
        self._pool.start(self._settings.in_flight, self._consume)

    async def watch(self) -> None:
        """End with the error of the first consumer that fails, and never otherwise: each takes a place with it."""
        await self._pool.watch()

    async def close(self) -> None:
        """End the consumers; what is at the engine is aborted."""
        await self._pool.close()

    @property
    def in_flight(self) -> int:
        """Requests at the engine now."""
        return len(self._sent)

    @property
    def finished_lines(self) -> int:
        """Lines ended since the start."""
        return self._answers.finished_lines

    @property
    def answers(self) -> int:
        """Answers of the engine since the start, whatever they were: a sign of its life."""
        return self._answers.came

    @property
    def untried_lines(self) -> int:
        """Lines given but never sent."""
        return self._queue.untried_lines

    def add(self, run: ChunkRun) -> None:
        """Take a chunk; its lines run as places get free."""
        self.speed.saturated(self._clock(), self.finished_lines)
        self._queue.add(run)

    def stop(self, run: ChunkRun) -> None:
        """Run no further line of a chunk and abort those at the engine. The caller closes what is unrun afterwards."""
        run.stopped = True
        for task, (other, _) in tuple(self._sent.items()):
            if other is run:
                task.cancel()
        self._queue.remove(run)
        self._answers.doubts.drop(run)
        self._calm.set()

    def send_no_more(self) -> None:
        """Send nothing more, ever."""
        self._queue.close()

    async def let_go(self, run: ChunkRun) -> None:
        """Return when nothing of a chunk is at the engine."""
        await self._until(lambda: not run.at_engine)

    @property
    def in_doubt(self) -> ChunkRun | None:
        """The chunk of the first answer that puts the engine in doubt; None while nothing does."""
        return self._answers.doubts.about

    @property
    def doubts_mark(self) -> int:
        """What a proof covers that is asked for now, for :meth:`engine_lives`."""
        return self._answers.doubts.mark

    @property
    def busy(self) -> bool:
        """Whether lines are at the engine, or wait to be tried again."""
        return bool(self._sent or self._queue.retries_waiting)

    def engine_lives(self, proved: int) -> bool:
        """Let lines go to the engine, and file as the lines' own trouble what was in doubt before it passed the proof.

        But for an engine that broke off everything it had, and is back already: that one died. And one that failed the
        proof meanwhile was ill: its lines are spared. Returns whether it died.
        """
        died = self._answers.settle(proved, self._sent)
        if not self._engine_up.is_set():
            self._engine_up.set()
            self._begin_to_measure()
        self._calm.set()
        return died

    def engine_ill(self) -> None:
        """Keep lines back from an engine that failed the proof; what is doubtful stays so until it is well or dead."""
        self._engine_up.clear()
        self.speed.ran_dry(self._clock(), self.finished_lines)
        self._answers.doubts.excused = True

    def engine_died(self) -> bool:
        """Keep lines back while the engine is away; what was lost with it costs no line an attempt.

        Returns whether lines became suspects.
        """
        self._engine_up.clear()
        self.speed.ran_dry(self._clock(), self.finished_lines)
        blamed = self._answers.doubts.blame_engine(self._queue)
        self._calm.set()
        return blamed

    def engine_hangs(self) -> None:
        """Give up everything at the engine as if it had died, and keep lines back."""
        for task, (run, place) in tuple(self._sent.items()):
            run.suspects.add(place)
            task.cancel()
        for run, place in self._queue.take_alone():
            self._queue.again(run, place)
        self.engine_died()

    async def engine_ready(self) -> None:
        """Return when lines may go to the engine."""
        await self._engine_up.wait()

    async def hold(self) -> None:
        """Send nothing more but what is sent alone, and return when nothing is at the engine."""
        self._queue.held = True
        self.speed.ran_dry(self._clock(), self.finished_lines)
        await self._until(self._is_quiet)

    def release(self) -> None:
        """Send everything again."""
        self._queue.held = False
        self._begin_to_measure()

    async def run_alone(self, lines: Iterable[Line]) -> None:
        """While held: send these lines, and return when each was answered or the engine has died of one of them."""
        for run, place in lines:
            self._queue.alone(run, place)
        await self._until(self._is_quiet)

    def again(self, run: ChunkRun, place: int) -> None:
        """Send a line again before untried ones."""
        self._queue.again(run, place)

    def end(self, run: ChunkRun, place: int, error: LineError) -> None:
        """End a line that is not at the engine with an error."""
        self._answers.end(run, place, error)

    def _begin_to_measure(self) -> None:
        """Time counts for the speed again, where lines wait."""
        if self.untried_lines:
            self.speed.saturated(self._clock(), self.finished_lines)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._calm.clear()
            await self._calm.wait()

    def _is_quiet(self) -> bool:
        return not (self._sent or self._queue.lines_alone or self._answers.doubts)

    async def _consume(self) -> None:
        """Send one line after the other, for ever."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            if not self._engine_up.is_set():
                await self._engine_up.wait()
            line = self._queue.next()
            if line is None:
                self.speed.ran_dry(self._clock(), self.finished_lines)
                await self._pool.sleep()
                continue
            self._pool.wake_next()
            await self._send(*line, task)
            # A consumer that remembered a chunk in its sleep would keep all its results.
            del line
            if self._pool.ends_burst():
                await self._pool.let_others_run()

    async def _send(self, run: ChunkRun, place: int, task: "asyncio.Task[object]") -> None:
        """Make one attempt at one line and file what came of it; a chunk's stop ends the attempt, not the consumer."""
        answer: Reply | EngineError
        self._sent[task] = (run, place)
        run.at_engine += 1
        sent, spell = self._clock(), self._answers.doubts.spell
        try:
            answer = await self._engine.post(
                run.lease.endpoint, run.body(place), timeout_seconds=self._settings.request_timeout_seconds
            )
        except EngineError as error:
            answer = error
        except asyncio.CancelledError:
            if self._pool.closing or not (run.stopped or place in run.suspects):
                raise
            task.uncancel()
            return
        finally:
            del self._sent[task]
            run.at_engine -= 1
            if not run.at_engine:
                self._calm.set()
        self._observer.answered(self._clock() - sent)
        if self._answers.file(task, run, place, answer, spell=spell, sent=self._sent):
            if len(self._answers.doubts) >= self._settings.in_flight:
                # Whatever it gets, it answers so: no more until it is known whose fault that is.
                self._engine_up.clear()
            self._doubted()
