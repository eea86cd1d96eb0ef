"""The leader's election: one PostgreSQL advisory lock, held by a connection of its own.

The lock says who may begin a term; the term in the ``leader`` row, which every lease statement checks, says whose
leases stand. A holder that is cut off loses the lock with its connection; until it notices, its leases are refused.
"""

import asyncio
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from slackwater.domain.errors import DatabaseUnavailable

_LOCK_KEY: Final = 0x51ACC_1EAD


class ElectionLock:
    """A try at the leader's lock. Not to be put behind a transaction pooler: the lock lives with the session."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[tuple[object, ...]] | None = None
        self._held = False

    async def try_hold(self) -> bool:
        """Tell whether this process holds the lock, taking it when it is free. Raises DatabaseUnavailable."""
        try:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(self._conninfo(), autocommit=True)
            if self._held:
                await self._scalar("SELECT %s", 1)
            else:
                self._held = bool(await self._scalar("SELECT pg_try_advisory_lock(%s)", _LOCK_KEY))
        except (psycopg.OperationalError, psycopg.InterfaceError, OSError) as error:
            await self.close()
            raise DatabaseUnavailable("the database does not answer; no leader can be elected") from error
        return self._held

    def _conninfo(self) -> str:
        """Name the connection, and have the server notice a leader whose machine vanished within half a minute."""
        return make_conninfo(
            self._url,
            connect_timeout=5,
            application_name="slackwater leader",
            options="-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3",
        )

    async def _scalar(self, statement: str, value: int) -> object:
        """Run one statement on the lock's connection, within a bound: a hung server must not hang the leader."""
        assert self._connection is not None
        try:
            async with asyncio.timeout(5):
                cursor = await self._connection.execute(statement.encode(), (value,))
                row = await cursor.fetchone()
        except TimeoutError as error:
            raise psycopg.OperationalError("no answer in time") from error
        return row[0] if row else None

    async def close(self) -> None:
        """Give the lock up. Idempotent."""
        self._held = False
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
