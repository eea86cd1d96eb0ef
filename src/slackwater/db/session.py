"""The one way to the database: a pool, and transactions that say which stage they belong to.

Every transaction of the service passes :class:`Database` (``transaction``, ``driver_transaction``, ``fetch``), so that
crash points and faults can be enumerated from one place. A driver error that means "PostgreSQL does not answer" becomes
DatabaseUnavailable at this edge.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import psycopg
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from slackwater.db.hot import HotPool, run_statement, was_hung_up
from slackwater.domain.errors import DatabaseUnavailable

_DOES_NOT_ANSWER = "the database does not answer; try again shortly"
_OPTIONS: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # Keep-alives are not sent while something waits to be acknowledged: a host that vanished just then.
    "tcp_user_timeout": 25_000,
    "application_name": "slackwater",
}


class TransactionSeam(Protocol):
    """Called around every commit; the production seam does nothing."""

    async def before_commit(self, stage: str) -> None:
        """Run after the last statement and before COMMIT."""
        ...

    async def after_commit(self, stage: str) -> None:
        """Run right after COMMIT returned."""
        ...


class NoSeam:
    """The seam of production: nothing happens at it."""

    async def before_commit(self, stage: str) -> None:
        """Do nothing."""

    async def after_commit(self, stage: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """How many connections one process may hold."""

    hot: int = 10
    """Of the driver's own: for what every request and every batch needs."""
    other: int = 5
    """Of SQLAlchemy's: for everything else."""
    timeout_seconds: float = 10.0
    prepare: bool = True
    """Whether statements are prepared; not behind a pooler that knows no prepared statements."""


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the driver's ways of saying "PostgreSQL does not answer" into one error of ours."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise DatabaseUnavailable(_DOES_NOT_ANSWER) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise DatabaseUnavailable(_DOES_NOT_ANSWER) from error
        raise


def _refuse_hung_up(connection: Any, _record: object, _fairy: object) -> None:
    """Have the pool drop a connection that the server has closed, with all of its age, and make a new one."""
    if was_hung_up(connection.driver_connection):
        raise InvalidatePoolError


def driver_url(url: str) -> str:
    """Name the driver in a ``postgresql://`` URL, as SQLAlchemy wants it."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url.removeprefix(scheme)
    return url


def plain_url(url: str) -> str:
    """Return the URL as libpq wants it, without a driver's name."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


class DriverTransaction:
    """A transaction on a connection of the driver's own."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def fetch(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement and return its rows as named tuples."""
        return await run_statement(self._connection, statement, params)

    async def copy(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write rows with COPY, the cheapest way for thousands of them. The names are ours, never a caller's."""
        async with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy,
        ):
            for row in rows:
                await copy.write_row(row)


class Database:
    """A pool of connections to one PostgreSQL database; safe for many tasks of one event loop."""

    def __init__(self, engine: AsyncEngine, hot: HotPool, seam: TransactionSeam) -> None:
        self._engine = engine
        self._hot = hot
        self._seam = seam

    @classmethod
    def connect(cls, url: str, *, pool: PoolSettings | None = None, seam: TransactionSeam | None = None) -> Self:
        """Prepare a pool for a ``postgresql://`` URL; no connection is made yet."""
        pool = pool or PoolSettings()
        engine = create_async_engine(
            driver_url(url),
            pool_size=1,
            max_overflow=pool.other - 1,
            pool_timeout=pool.timeout_seconds,
            pool_pre_ping=False,
            pool_recycle=1800,
            connect_args=_OPTIONS | {"prepare_threshold": None},
        )
        event.listen(engine.sync_engine, "checkout", _refuse_hung_up)
        hot = HotPool(
            plain_url(url),
            _OPTIONS,
            size=pool.hot,
            timeout_seconds=pool.timeout_seconds,
            prepare=pool.prepare,
        )
        return cls(engine, hot, seam or NoSeam())

    @asynccontextmanager
    async def transaction(self, stage: str) -> AsyncIterator[AsyncConnection]:
        """Run one transaction: committed when the block ends, rolled back when it raises.

        Raises DatabaseUnavailable where the database cannot be reached or the connection breaks.
        """
        with _translated():
            async with self._engine.connect() as connection, connection.begin():
                yield connection
                await self._seam.before_commit(stage)
        await self._seam.after_commit(stage)

    @asynccontextmanager
    async def driver_transaction(self, stage: str) -> AsyncIterator[DriverTransaction]:
        """Run one transaction as :meth:`transaction` does, but on the driver's own connections, past SQLAlchemy.

        For what every batch needs. It holds one of the connections of :meth:`fetch`: do not call that inside.
        """
        with _translated():
            async with self._hot.transaction() as connection:
                yield DriverTransaction(connection)
                await self._seam.before_commit(stage)
        await self._seam.after_commit(stage)

    async def fetch(self, stage: str, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement as a transaction of its own and return its rows as named tuples.

        For statements of ``queue.sql`` and compiled ones. One round trip: the connection commits by itself. Errors as
        for :meth:`transaction`.
        """
        await self._seam.before_commit(stage)
        with _translated():
            rows = await self._hot.fetch(statement, params)
        await self._seam.after_commit(stage)
        return rows

    async def ping(self) -> None:
        """Ask for nothing. Raises DatabaseUnavailable where no answer comes."""
        await self.fetch("ping", "SELECT 1", {})

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        await self._hot.close()
        await self._engine.dispose()
