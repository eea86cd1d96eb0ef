"""The leader's election: one PostgreSQL advisory lock, held by a connection of its own.

The lock says who may begin a term; the term in the ``leader`` row, which every statement of a leader checks, says whose
leases stand. Whoever holds the lock has to be heard on its connection: it beats every second, and PostgreSQL ends the
connection, and with it the lock, after four seconds of silence. Keep-alives would not do: the kernel of a process that
is stopped goes on answering them.
"""

import asyncio
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from slackwater.domain.errors import DatabaseUnavailable

_LOCK_KEY: Final = 0x51ACC_1EAD
_BEAT_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 4
"""Three beats may be missed: a process that is only slow keeps the lead, and another follows within five seconds."""
_ANSWER_SECONDS: Final = 5.0
_TRY: Final = b"SELECT pg_try_advisory_lock(%s)"
_BEAT: Final = b"SELECT coalesce(max(term), 0) FROM leader WHERE id = %s"
_LOST: Final = (psycopg.OperationalError, psycopg.InterfaceError, OSError)


class ElectionLock:
    """A try at the leader's lock. Not to be put behind a transaction pooler: the lock lives with the session."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[tuple[object, ...]] | None = None
        self._beating: asyncio.Task[None] | None = None
        self.held = False
        """Whether this process holds the lock, as far as it has heard; it may have lost it a moment ago."""
        self.newest_term = 0
        """The newest term of anybody that a beat has seen."""

    async def try_hold(self) -> bool:
        """Tell whether this process holds the lock, taking it when it is free. Raises DatabaseUnavailable.

        Between two calls that return False at most three seconds may pass, or each connects anew.
        """
        if self.held:
            return True
        try:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(self._conninfo(), autocommit=True)
            self.held = bool(await self._scalar(_TRY, _LOCK_KEY))
        except _LOST as error:
            await self.close()
            raise DatabaseUnavailable("the database does not answer; no leader can be elected") from error
        if self.held:
            self._beating = asyncio.create_task(self._beat(), name="leader-beat")
        return self.held

    async def _beat(self) -> None:
        """Be heard for as long as the lock is held, and hear whether another has begun a term meanwhile."""
        try:
            while True:
                await asyncio.sleep(_BEAT_SECONDS)
                self.newest_term = int(str(await self._scalar(_BEAT, 1)))
        except (psycopg.Error, OSError):
            # Whatever it was: nobody may believe in a lock that is no longer kept alive.
            self._beating = None
            await self.close()

    def _conninfo(self) -> str:
        """Name the connection, and have the server end it when nothing is heard on it."""
        return make_conninfo(
            self._url,
            connect_timeout=5,
            application_name="slackwater leader",
            options=f"-c idle_session_timeout={_SILENCE_SECONDS}s",
        )

    async def _scalar(self, statement: bytes, value: int) -> object:
        """Run one statement on the lock's connection, within a bound: a hung server must not hang the leader."""
        assert self._connection is not None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                cursor = await self._connection.execute(statement, (value,))
                row = await cursor.fetchone()
        except TimeoutError as error:
            raise psycopg.OperationalError("no answer in time") from error
        return row[0] if row else None

    async def close(self) -> None:
        """Give the lock up. Idempotent."""
        self.held = False
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait((beating,))
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
