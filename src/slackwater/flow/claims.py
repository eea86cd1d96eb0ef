"""Claims on batches, of planning and of assembling: given back when the work is broken off, set aside after too many.

A claim that is given back does not count: whoever is told to stop, or finds the database or the store away, is no sign
that anything is wrong with the batch. Every other end of a claim counts, a killed process above all.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

import structlog

from slackwater.db.queue.planning import release_claim
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable, Unavailable
from slackwater.domain.ids import BatchId

MOST_CLAIMS: Final = 20
"""A batch that was claimed so often, and neither ended nor got on, is set aside: it may be what ends its processes."""

_LOG: Final = structlog.get_logger("slackwater.claims")
_STORE_AWAY_SECONDS: Final = 15.0
"""Longer than a stage rests after failures: where it is one batch's object that cannot be had, others come first."""
_RETURN_SECONDS: Final = 5.0


class ClaimReturns:
    """Gives back the claims of one stage of one process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._owed: dict[UUID, tuple[BatchId, float]] = {}
        """What could not be given back while the database was away."""

    @contextlib.asynccontextmanager
    async def if_broken_off(self, batch_id: BatchId, claim_token: UUID) -> AsyncIterator[None]:
        """Give the claim back when the block is cancelled or finds a part away; the error goes on."""
        try:
            yield
        except (asyncio.CancelledError, Unavailable) as error:
            all_wait = isinstance(error, asyncio.CancelledError | DatabaseUnavailable)
            self._owed[claim_token] = (batch_id, 0.0 if all_wait else _STORE_AWAY_SECONDS)
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_RETURN_SECONDS):
                    await self.settle()
            raise

    async def settle(self) -> None:
        """Give back what is still owed. Raises Unavailable; the same is then given back the next time."""
        for claim_token, (batch_id, pause_seconds) in list(self._owed.items()):
            if await release_claim(self._db, batch_id, claim_token, pause_seconds=pause_seconds):
                _LOG.info("claim given back", batch_id=batch_id)
            del self._owed[claim_token]
