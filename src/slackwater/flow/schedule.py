"""Schedule: one elected leader leases chunks to workers, a tick at a time.

Each tick asks the database who has room and what may run, lets the pure policy choose, and writes the leases in one
statement that stands only while this leader's term does. A leader that is lost changes nothing but time: the next one
begins a new term and reads the same tables.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from slackwater.db.election import ElectionLock
from slackwater.db.queue.leases import elect, lease_chunks, load_tags, openings, reap_leases, runnable, save_tags
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable
from slackwater.domain.policy import FairShare, Policy

_LOG: Final = structlog.get_logger("slackwater.schedule")
_LEASES_A_TICK: Final = 64
_HEAD_CHUNKS: Final = 64
_TICKS_BETWEEN_REAPS: Final = 10
_TICKS_BETWEEN_SAVES: Final = 100
_TICKS_BETWEEN_TRIES: Final = 5
"""A process that does not lead asks for the lead twice a second or so."""
_TICKS_BEFORE_REAPING: Final = 50
"""What kept the database from a leader may have kept it from the workers, too: they get a moment to be heard again."""


@dataclass(kw_only=True, slots=True)
class Leader:
    """The leader's state in memory; everything in it can be rebuilt from the tables."""

    db: Database
    lock: ElectionLock
    holder: str
    granted: Callable[[int], None]
    """Told how many leases were written."""
    reaped: Callable[[int], None]
    """Told how many leases of dead workers ended."""
    term: int | None = None
    """The term this process leads, None while it does not."""
    tags: dict[tuple[str, str], float] = field(default_factory=dict)
    _policy: Policy = field(default_factory=lambda: FairShare({}))
    _tick: int = 0
    _reaps_from: int = 0

    async def schedule_once(self) -> bool:
        """Do one tick; returns whether leases were written. Does nothing while another process leads."""
        self._tick += 1
        try:
            return await self._schedule()
        except DatabaseUnavailable:
            self._reaps_from = self._tick + _TICKS_BEFORE_REAPING
            raise

    async def _schedule(self) -> bool:
        if not await self._leads():
            return False
        assert self.term is not None
        if self._tick >= self._reaps_from and self._tick % _TICKS_BETWEEN_REAPS == 0:
            reaped = await reap_leases(self.db)
            if reaped:
                self.reaped(reaped)
                _LOG.warning("leases of dead workers returned", chunks=reaped)
        if self.tags and self._tick % _TICKS_BETWEEN_SAVES == 0:
            await save_tags(self.db, self.term, self.tags)
        return await self._lease(self.term)

    async def _leads(self) -> bool:
        """Hold or win the election; the first tick of a term reads the tags back."""
        if self.term is not None and self._stands(self.term):
            return True
        if self.term is not None:
            _LOG.warning("leads no more", term=self.term, holder=self.holder)
            self.term = None
            self._reaps_from = self._tick + _TICKS_BEFORE_REAPING
        if not self.lock.held and self._tick % _TICKS_BETWEEN_TRIES != 1:
            return False
        if not await self.lock.try_hold():
            return False
        self.tags = await load_tags(self.db)
        self._policy = FairShare(self.tags)
        self.term = await elect(self.db, self.holder)
        _LOG.info("leads", term=self.term, holder=self.holder)
        return True

    def _stands(self, term: int) -> bool:
        """Tell whether a term still goes on, as far as the lock has heard.

        One that froze between winning the lock and beginning its term may begin it late, over the term of whoever holds
        the lock by then: the holder has to begin another, or nobody's leases would stand.
        """
        return self.lock.held and self.lock.newest_term <= term

    async def _lease(self, term: int) -> bool:
        """Match who has room with what may run and write the leases."""
        room = await openings(self.db)
        if not room:
            return False
        models = sorted({model for opening in room for model in opening.models})
        waiting = await runnable(self.db, models, head=_HEAD_CHUNKS)
        grants = self._policy.grant(waiting, room, limit=_LEASES_A_TICK)
        if not grants:
            return False
        written = await lease_chunks(self.db, term, grants)
        if written == 0:
            # Either another term has begun or the batches just stopped; the lock's next beat tells which.
            _LOG.warning("no lease stands", term=term, asked=len(grants))
        self.granted(written)
        return written > 0

    async def close(self) -> None:
        """Save what is worth saving and give the lock up."""
        try:
            if self.term is not None and self.tags:
                await save_tags(self.db, self.term, self.tags)
        finally:
            self.term = None
            await self.lock.close()
