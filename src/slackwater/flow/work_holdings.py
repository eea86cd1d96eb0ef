"""The leases that a worker holds, each on its way from waiting over running to committed, and what moves them on.

::

    waiting ──open──► opening ──► running ──complete──► committing ──► ended
       └─────────────────┴───────────┴── revoked, stopped or given back

The database says what is leased; :meth:`Holdings.obey` brings this in line with it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.leases import Lease, Orders, release_chunk
from slackwater.db.session import Database
from slackwater.domain.errors import Unavailable
from slackwater.domain.ids import LeaseToken
from slackwater.domain.policy import EXPRESS_LINES
from slackwater.flow.chunk_checkpoint import Checkpoints
from slackwater.flow.chunk_commit import commit_run
from slackwater.flow.chunk_open import open_chunk
from slackwater.flow.chunk_run import ChunkRun
from slackwater.flow.side_tasks import SideTasks
from slackwater.flow.work_feed import Feeder
from slackwater.flow.work_observers import HoldingsObserver
from slackwater.flow.work_queue import Line
from slackwater.flow.work_tally import Tallies

_LOG: Final = structlog.get_logger("slackwater.work")
_UNREADABLE_PAUSE_SECONDS: Final = 5.0


class Holdings:
    """What one worker holds.

    ``changed`` is called when the database should be asked again soon, ``suspected`` when a chunk came with suspects.
    """

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        feeder: Feeder,
        *,
        observer: HoldingsObserver,
        changed: Callable[[], None],
        suspected: Callable[[], None],
        clock: Callable[[], float],
        lines_ahead: int,
        knows_priority: bool,
    ) -> None:
        self._db = db
        self._store = store
        self._feeder = feeder
        self._observer = observer
        self._changed = changed
        self._suspected = suspected
        self._clock = clock
        self._lines_ahead = lines_ahead
        self._knows_priority = knows_priority
        self._waiting: dict[LeaseToken, Lease] = {}
        self._opening: dict[LeaseToken, Lease] = {}
        self._running: dict[LeaseToken, ChunkRun] = {}
        self._checkpoints: dict[LeaseToken, Checkpoints] = {}
        """Of the running ones."""
        self._committing: dict[LeaseToken, ChunkRun] = {}
        self._revoked: set[LeaseToken] = set()
        """Of the leases being committed, those that the database no longer knows."""
        self._ended: dict[LeaseToken, float] = {}
        self._side = SideTasks(clock)
        self.tallies = Tallies()
        """What was committed."""
        self.taking = True
        """Whether new leases are opened; a draining worker gives them back."""

    @property
    def empty(self) -> bool:
        """Whether nothing is held any more."""
        return not (self._waiting or self._opening or self._running or self._committing)

    @property
    def finished_lines(self) -> int:
        """Lines already ended in chunks that are not committed yet."""
        return sum(run.finished for run in (*self._running.values(), *self._committing.values()))

    def obey(self, orders: Orders, began: float) -> None:
        """Bring what is held in line with what was leased at ``began``, when the question was asked.

        An answer may be older than a commit of ours: a lease that ended after ``began`` is not taken up again.
        """
        self._ended = {token: ended for token, ended in self._ended.items() if ended >= began}
        leased = {lease.token: lease for lease in orders.leases}
        for lease in leased.values():
            self._take(lease)
        for token in [token for token in self._waiting if token not in leased]:
            del self._waiting[token]
        for token, run in list(self._running.items()):
            if token not in leased:
                self._abandon(run)
        self._revoked.update(token for token in self._committing if token not in leased)
        self.open_more()

    def _take(self, lease: Lease) -> None:
        """Take up one lease, or hear that its batch has stopped."""
        token = lease.token
        if token in self._ended or token in self._committing or token in self._opening:
            return
        run = self._running.get(token)
        if run is not None:
            if lease.stopped is not None and not run.stopped:
                self._side.start(self._stop(run, lease.stopped))
        elif lease.stopped is not None or not self.taking:
            # Nothing of it ran here: left pending, it costs whoever finishes the batch less than a commit would.
            self._waiting.pop(token, None)
            self._end(token)
            self._side.start(self._release(lease))
        else:
            self._waiting[token] = lease

    def open_more(self) -> None:
        """Read the next chunks before the feeder runs dry, small ones first, and no more than it needs."""
        if not self._waiting:
            return
        opened = self._feeder.untried_lines + sum(lease.n_requests for lease in self._opening.values())
        for lease in sorted(self._waiting.values(), key=lambda lease: lease.n_requests > EXPRESS_LINES):
            if opened >= self._lines_ahead and lease.n_requests > EXPRESS_LINES:
                return
            del self._waiting[lease.token]
            self._opening[lease.token] = lease
            opened += lease.n_requests
            self._side.start(self._open(lease))

    async def _open(self, lease: Lease) -> None:
        """Read a chunk's lines and hand them to the feeder."""
        try:
            run = await open_chunk(
                self._db, self._store, lease, knows_priority=self._knows_priority, started_at=self._clock()
            )
        except Unavailable as error:
            _LOG.warning("chunk cannot be read now", batch_id=lease.batch_id, chunk=lease.seq, cause=str(error))
            # Given back at once it would be leased again at once, and so on several times a second.
            await asyncio.sleep(_UNREADABLE_PAUSE_SECONDS)
            del self._opening[lease.token]
            self._end(lease.token)
            await self._release(lease)
            return
        del self._opening[lease.token]
        if not self.taking:
            self._end(lease.token)
            await self._release(lease)
            return
        self._running[lease.token] = run
        self._checkpoints[lease.token] = Checkpoints(self._db, self._store, run)
        if run.complete:
            # Whoever had it before finished it all and died before the commit, or its input is lost.
            self.complete(run)
            return
        self._feeder.add(run)
        if run.suspects:
            self._suspected()

    def complete(self, run: ChunkRun) -> None:
        """Commit a run whose lines have all ended; one that is given up meanwhile is left alone."""
        if self._drop(run.lease.token) is None:
            return
        self._committing[run.lease.token] = run
        self._side.start(self._commit(run))

    async def _commit(self, run: ChunkRun) -> None:
        token = run.lease.token
        started = self._clock()
        try:
            stands = await commit_run(self._db, self._store, run, still_held=lambda: token not in self._revoked)
        finally:
            del self._committing[token]
            self._revoked.discard(token)
            self._end(token)
            self._changed()
        if stands:
            self.tallies.add(run)
            self._observer.committed(run, self._clock() - started)
        else:
            _LOG.warning("commit refused: the lease was lost", batch_id=run.lease.batch_id, chunk=run.lease.seq)
            self._observer.refused(run)

    async def _stop(self, run: ChunkRun, reason: str) -> None:
        """End a chunk of a stopped batch: abort what is at the engine, keep what is done, close the rest, commit.

        One of a paused batch is given back instead, with what is done.
        """
        await self._halt(run)
        if reason == "paused":
            await self._hand_over(run)
            return
        run.close_unrun(reason)
        if run.lease.token in self._running:
            self.complete(run)

    def _abandon(self, run: ChunkRun) -> None:
        """Drop a chunk whose lease is gone: its results would be refused."""
        self._drop(run.lease.token)
        self._end(run.lease.token)
        self._observer.refused(run)
        _LOG.warning("chunk abandoned: its lease is gone", batch_id=run.lease.batch_id, chunk=run.lease.seq)
        self._side.start(self._halt(run))

    async def drain(self) -> None:
        """Take nothing more, and give each chunk back as soon as nothing of it is at the engine."""
        self.taking = False
        self._feeder.send_no_more()
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for lease in waiting:
            self._end(lease.token)
        async with asyncio.TaskGroup() as group:
            for lease in waiting:
                group.create_task(self._release(lease))
            for run in list(self._running.values()):
                group.create_task(self._let_end(run))

    async def _let_end(self, run: ChunkRun) -> None:
        """Give a chunk back once what is at the engine of it has ended, if that was not the rest of it."""
        await self._feeder.let_go(run)
        self._feeder.stop(run)
        await self._hand_over(run)

    async def give_back(self) -> None:
        """Give every chunk back that is not being committed, with what is done: another worker may have an engine."""
        leases = list(self._waiting.values())
        runs = list(self._running.values())
        self._waiting.clear()
        for lease in leases:
            self._end(lease.token)
        for run in runs:
            await self._halt(run)
        for run in runs:
            await self._hand_over(run)
        for lease in leases:
            await self._release(lease)

    async def _hand_over(self, run: ChunkRun) -> None:
        """Keep what a halted run has finished and give its lease back."""
        checkpoints = self._drop(run.lease.token)
        if checkpoints is None:
            return
        self._end(run.lease.token)
        await self._keep(checkpoints, handing_over=True)
        await self._release(run.lease)

    def _drop(self, token: LeaseToken) -> Checkpoints | None:
        """Take a chunk from the running ones; None where it was none of them."""
        self._running.pop(token, None)
        return self._checkpoints.pop(token, None)

    async def checkpoint_all(self) -> None:
        """Keep what the running chunks have finished so far, one after the other."""
        for checkpoints in list(self._checkpoints.values()):
            await self._keep(checkpoints)

    async def _keep(self, checkpoints: Checkpoints, *, handing_over: bool = False) -> None:
        """Write one checkpoint; what could not be kept is kept the next time, or runs again."""
        began = self._clock()
        try:
            if await checkpoints.keep(handing_over=handing_over):
                self._observer.checkpointed(self._clock() - began)
        except Unavailable as error:
            _LOG.warning("checkpoint not written", cause=str(error))

    def suspects(self) -> list[Line]:
        """Return the lines held that were at an engine when it died."""
        return [(run, place) for run in self._running.values() if not run.stopped for place in sorted(run.suspects)]

    async def settle(self, seconds: float) -> None:
        """Wait until everything on its way has ended, and end what takes longer.

        What it was about to write is refused or swept later: the leases end with this worker's heartbeat.
        """
        if not await self._side.settle(seconds):
            _LOG.warning("ends without committing: the database or the store is away", chunks=len(self._committing))

    async def _halt(self, run: ChunkRun) -> None:
        """Run nothing more of a chunk, and wait until the engine has let go of it."""
        self._feeder.stop(run)
        await self._feeder.let_go(run)

    async def _release(self, lease: Lease) -> None:
        """Give one lease back. Where the database is away the next sync finds it leased, and it is taken up again."""
        self._observer.released()
        try:
            await release_chunk(self._db, lease)
        except Unavailable as error:
            _LOG.warning("lease not given back", batch_id=lease.batch_id, chunk=lease.seq, cause=str(error))

    def _end(self, token: LeaseToken) -> None:
        """Remember that a lease ended, until an answer asked for later has been obeyed."""
        self._ended[token] = self._clock()
