"""What becomes of each answer of the engine: a line's end, another try, or a doubt that waits for a proof."""

import asyncio
from collections.abc import Callable

from slackwater.domain.errors import EngineError, EngineWrongModel
from slackwater.domain.line_errors import LineError
from slackwater.domain.outcomes import (
    Dead,
    Failure,
    Released,
    Retry,
    RetryPolicy,
    failure,
    is_doubtful,
    is_suspect,
    spared,
    success,
)
from slackwater.domain.replies import Reply
from slackwater.flow.chunk_run import ChunkRun
from slackwater.flow.work_doubt import Doubts, Sent
from slackwater.flow.work_observers import FeedObserver
from slackwater.flow.work_queue import LineQueue


class Answers:
    """Files answers, and keeps back those in doubt. ``completed`` is called with each run whose last line has ended.

    ``served`` are the names that the engine may give its model in an answer, besides the one that the line names.
    """

    def __init__(
        self,
        queue: LineQueue,
        *,
        retries: RetryPolicy,
        observer: FeedObserver,
        completed: Callable[[ChunkRun], None],
        served: frozenset[str],
        jitter: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._retries = retries
        self._observer = observer
        self._completed = completed
        self._served = served
        self._jitter = jitter
        self.doubts = Doubts()
        self.finished_lines = 0
        """Lines ended since the start."""
        self.came = 0
        """Answers since the start, whatever they were."""

    def file(
        self,
        task: "asyncio.Task[object]",
        run: ChunkRun,
        place: int,
        answer: Reply | EngineError,
        *,
        spell: int,
        sent: Sent,
    ) -> bool:
        """File what one attempt came to; returns whether it puts the engine in doubt.

        ``task`` made the attempt in this ``spell`` of the engine, and ``sent`` is what is at the engine besides.
        """
        if isinstance(answer, Reply):
            self.came += 1
        done = success(answer)
        if done is not None:
            model = done.model
            if model == run.lease.model or model is None or model in self._served:
                if self.doubts.beside:
                    self.doubts.answered(task, (run, place))
                run.succeed(place, done)
                self._end_line(run)
                return False
            answer = EngineWrongModel("The engine answered with another model than the request names.")
        if is_doubtful(answer, policy=self._retries, attempts=run.attempts(place)):
            self.doubts.add(run, place, answer, spell=spell, sent=sent)
            return True
        self.doubts.answered(task, (run, place))
        self._file_failure(run, place, answer)
        return False

    def settle(self, proved: int, sent: Sent) -> bool:
        """File what was in doubt when the engine was put to the proof, which it passed; returns whether it had died."""
        died = self.doubts.everything_broke(sent, at_least=1 if self._queue.held else 2)
        if died:
            self.doubts.blame_engine(self._queue)
        if self.doubts.excused:
            self.doubts.spell += 1
            self.doubts.excused = False
        for _, spell, run, place, answer in self.doubts.take(proved):
            if spell < self.doubts.spell:
                self._spare(run, place, answer)
            else:
                self._file_failure(run, place, answer)
        return died

    def end(self, run: ChunkRun, place: int, error: LineError) -> None:
        """End a line with an error."""
        run.fail(place, error)
        self._end_line(run)

    def _file_failure(self, run: ChunkRun, place: int, answer: Reply | EngineError) -> None:
        """File an attempt that came to nothing although the engine is well."""
        attempts = run.attempts(place)
        self._follow(run, place, failure(answer, policy=self._retries, jitter=self._jitter(), attempts=attempts))

    def _spare(self, run: ChunkRun, place: int, answer: Reply | EngineError) -> None:
        """File an attempt that came to nothing because the engine was ill."""
        attempts = run.attempts(place)
        if place in run.on_trial:
            self._queue.alone(run, place)
        elif is_suspect(answer):
            self._follow(run, place, spared(answer, policy=self._retries, jitter=self._jitter(), attempts=attempts))
        else:
            self._queue.again(run, place)

    def _follow(self, run: ChunkRun, place: int, outcome: Failure) -> None:
        """Do what follows from an attempt that came to nothing."""
        match outcome:
            case Retry(delay_seconds=delay, error=line_error):
                run.tried(place, run.attempts(place).after(outcome))
                self._observer.retried(line_error)
                self._queue.later(delay, run, place)
            case Dead(error=line_error) | Released(error=line_error):
                # Released: the engine is there for others, and it is this line that never gets its answer through.
                self.end(run, place, line_error)

    def _end_line(self, run: ChunkRun) -> None:
        """Count a line that has ended; the last one completes its chunk."""
        self.finished_lines += 1
        if run.complete and not run.stopped:
            self._completed(run)
