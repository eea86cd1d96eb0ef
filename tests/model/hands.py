"""A worker that does one thing at a time: it obeys, has a line answered, checkpoints, commits, hands over, or does not.

It is put together from what the real one is (``flow/chunk_*``, the statements of ``db/queue/leases``) without its
loops, so that an example decides what comes between two of its writes.
"""

from dataclasses import dataclass, field

from slackwater.db.queue.leases import Lease, Report, register_worker, release_chunk, sync
from slackwater.db.session import Database
from slackwater.domain.errors import EngineError, Unavailable
from slackwater.domain.ids import LeaseToken, WorkerId
from slackwater.domain.line_errors import ENGINE_KILLED
from slackwater.domain.outcomes import Dead, Released, Retry, RetryPolicy, failure, success
from slackwater.flow.chunk_checkpoint import Checkpoints
from slackwater.flow.chunk_commit import commit_run
from slackwater.flow.chunk_open import open_chunk
from slackwater.flow.chunk_run import ChunkRun
from slackwater.inference.simulated import SimulatedEngine
from tests.model.crossings import CrossedStore, Process
from tests.service import MODEL, new_uuid

_RETRIES = RetryPolicy(max_attempts=2)


@dataclass(kw_only=True)
class Held:
    """One chunk that a worker runs."""

    run: ChunkRun
    checkpoints: Checkpoints


@dataclass(kw_only=True, eq=False)
class Hand:
    """One worker process. ``alive``: registered, and not dead since."""

    db: Database
    store: CrossedStore
    engine: SimulatedEngine
    process: Process
    held: dict[LeaseToken, Held] = field(default_factory=dict)
    alive: bool = False

    def __post_init__(self) -> None:
        self.incarnation = new_uuid()

    async def start(self) -> None:
        """Begin as a new process of the same name."""
        self.held.clear()
        self.incarnation = new_uuid()
        await register_worker(
            self.db,
            worker_id=WorkerId(self.process.name),
            incarnation=self.incarnation,
            models=[MODEL],
            slots=8,
        )
        self.alive = True

    def die(self) -> None:
        """Lose everything that is only in memory."""
        self.held.clear()
        self.alive = False

    async def obey(self) -> None:
        """Ask what is leased, take up what is new, stop what has stopped, drop what is another's."""
        report = Report(
            worker_id=WorkerId(self.process.name),
            incarnation=self.incarnation,
            target_lines=12,
            in_flight=0,
            engine_ready=self.engine.is_up,
            lines_per_second=None,
        )
        orders = await sync(self.db, report)
        if orders is None:
            self.die()
            return
        leased = {lease.token: lease for lease in orders.leases}
        for token in [token for token in self.held if token not in leased]:
            del self.held[token]
        for lease in leased.values():
            await self._take(lease)

    async def _take(self, lease: Lease) -> None:
        held = self.held.get(lease.token)
        if held is None:
            await (self._open(lease) if lease.stopped is None else release_chunk(self.db, lease))
        elif lease.stopped == "paused":
            await self._hand_over(held)
        elif lease.stopped is not None:
            held.run.stopped = True
            if not held.run.complete:
                held.run.close_unrun(lease.stopped)
            await self._commit(held)

    async def _open(self, lease: Lease) -> None:
        try:
            run = await open_chunk(self.db, self.store, lease, knows_priority=False, started_at=0.0)
        except Unavailable:
            await release_chunk(self.db, lease)
            return
        self.held[lease.token] = Held(run=run, checkpoints=Checkpoints(self.db, self.store, run))

    async def answer(self, lines: int) -> None:
        """Have the engine answer so many lines, one at a time; it is started anew where one of them kills it."""
        for held in list(self.held.values()):
            for place in held.run.unended():
                if lines == 0 or not self.engine.is_up or held.run.stopped:
                    return
                lines -= 1
                await self._answer_one(held.run, place)

    async def _answer_one(self, run: ChunkRun, place: int) -> None:
        while True:
            try:
                answer = await self.engine.post("/v1/chat/completions", run.body(place), timeout_seconds=60.0)
            except EngineError as error:
                if not self.engine.is_up:
                    self.engine.restart()
                    run.fail(place, ENGINE_KILLED)  # It ran alone.
                    return
                outcome = failure(error, policy=_RETRIES, jitter=0.0, attempts=run.attempts(place))
            else:
                done = success(answer)
                if done is not None:
                    run.succeed(place, done)
                    return
                outcome = failure(answer, policy=_RETRIES, jitter=0.0, attempts=run.attempts(place))
            match outcome:
                case Retry():
                    run.tried(place, run.attempts(place).after(outcome))
                case Dead(error=line_error) | Released(error=line_error):
                    run.fail(place, line_error)
                    return

    async def checkpoint(self) -> None:
        """Keep what is finished of every chunk."""
        for held in list(self.held.values()):
            await held.checkpoints.keep()

    async def commit(self) -> None:
        """Commit what is complete."""
        for held in list(self.held.values()):
            if held.run.complete:
                await self._commit(held)

    async def _commit(self, held: Held) -> None:
        await commit_run(self.db, self.store, held.run, still_held=lambda: False)
        self.held.pop(held.run.lease.token, None)

    async def give_back(self) -> None:
        """Hand every chunk over, as a worker does that is told to stop."""
        for held in list(self.held.values()):
            await self._hand_over(held)

    async def _hand_over(self, held: Held) -> None:
        if await held.checkpoints.keep(handing_over=True):
            await release_chunk(self.db, held.run.lease)
        del self.held[held.run.lease.token]
