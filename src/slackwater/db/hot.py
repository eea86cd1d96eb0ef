"""The hot way to the database: statements on the driver's own connections, past SQLAlchemy, prepared.

Every claim, lease, sync and commit goes this way, and what every request of the API asks: a round trip costs a third of
what it costs through SQLAlchemy's asyncio bridge (218 against 605 µs of CPU, measured side by side), and a prepared
statement spares the server the planning, which for the larger ones costs more than running them.

The pool is our own, because it has to fail as fast and recover as fast as the server does: the driver's
(``psycopg_pool``) connects in the background, so that a caller learns of a refused connection as a time-out without a
cause, and of a server's return only when a pause that doubles has passed (docs/decisions).
"""

import asyncio
import select
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row

_PREPARE_AFTER: Final = 2
_FREE_OF_TRANSACTIONS: Final = 2


class HotPool:
    """A pool of self-committing connections, each made when it is first needed; belongs to one event loop."""

    def __init__(
        self, url: str, options: Mapping[str, Any], *, size: int, timeout_seconds: float, prepare: bool
    ) -> None:
        self._url = url
        self._options = {
            **options,
            "autocommit": True,
            "row_factory": namedtuple_row,
            "prepare_threshold": _PREPARE_AFTER if prepare else None,
        }
        self._timeout_seconds = timeout_seconds
        self._places = asyncio.Semaphore(size)
        self._transactions = asyncio.Semaphore(max(1, size - _FREE_OF_TRANSACTIONS))
        self._idle: list[psycopg.AsyncConnection[Any]] = []
        """The last used is the next used, so that the fewest stay warm."""
        self._closed = False

    async def fetch(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement as a transaction of its own and return its rows as named tuples.

        Raises the driver's errors; a pool without a free connection for too long is an OperationalError, too. Nothing
        is ever sent twice: whether a statement that broke off was carried out is not known here.
        """
        async with self._borrowed() as connection:
            return await run_statement(connection, statement, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Run one transaction: committed when the block ends, rolled back when it raises. Errors as for ``fetch``.

        Two connections stay free of them where there are more: a transaction may wait for another's lock, and whoever
        asks one statement need not. After a rollback the driver prepares its connection's statements anew.
        """
        await self._take_place(self._transactions)
        try:
            async with self._borrowed() as connection, connection.transaction():
                yield connection
        finally:
            self._transactions.release()

    async def close(self) -> None:
        """Close every connection; one in use is closed when it comes back. Idempotent."""
        self._closed = True
        await self._close_idle()

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        await self._take_place(self._places)
        try:
            connection = await self._connection()
            try:
                yield connection
            except psycopg.Error as error:
                if connection.broken:
                    # Also where the server's word for it is another: a transaction that was idle for too long, say.
                    raise psycopg.OperationalError("the connection broke") from error
                raise
            finally:
                await self._give_back(connection)
        finally:
            self._places.release()

    async def _take_place(self, places: asyncio.Semaphore) -> None:
        if not places.locked():
            # A time limit costs 5 µs, which nobody needs who does not wait.
            await places.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await places.acquire()
        except TimeoutError as error:
            raise psycopg.OperationalError("no connection of the pool became free in time") from error

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        """Return an idle connection that the server has not closed meanwhile, else a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not was_hung_up(connection):
                return connection
            await connection.close()
        return await psycopg.AsyncConnection.connect(self._url, **self._options)

    async def _give_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Keep a connection that is at rest. One that broke takes the idle ones along: they broke with it."""
        if connection.pgconn.transaction_status == TransactionStatus.IDLE and not self._closed:
            self._idle.append(connection)
            return
        broken = connection.broken
        await connection.close()
        if broken:
            await self._close_idle()

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


async def run_statement(
    connection: psycopg.AsyncConnection[Any], statement: str, params: Mapping[str, Any]
) -> list[Any]:
    """Run one statement and return its rows; none where it returns none."""
    cursor = await connection.execute(statement, params)
    result = cursor.pgresult
    # Not `description`, which makes an object for each column: a seventh of what a wide row costs.
    return await cursor.fetchall() if result is not None and result.nfields else []


def was_hung_up(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether anything came from the server unasked: a connection at rest hears nothing but its end."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
