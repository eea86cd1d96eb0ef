"""All rows of the database: out of one snapshot, and into an empty schema in one transaction.

What is copied is what ``tables`` has: a new table or column is part of it from its migration on. The form is that of
PostgreSQL's COPY in text, one line a row, which every version of the server reads.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slackwater.db.tables import metadata
from slackwater.domain.errors import DatabaseUnavailable, SetupError

_NAME: Final = "slackwater copy"

_Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableShape:
    """A table and the columns that its rows are copied with, in this order."""

    name: str
    columns: tuple[str, ...]


def table_shapes() -> tuple[TableShape, ...]:
    """Return every table of this version's schema, one that is referred to before those that refer to it."""
    return tuple(
        TableShape(
            name=str(table.name), columns=tuple(str(each.name) for each in table.columns if each.computed is None)
        )
        for table in metadata.sorted_tables
    )


class Snapshot:
    """The database as it was at one moment."""

    def __init__(self, connection: _Connection, taken_at: datetime) -> None:
        self._connection = connection
        self.taken_at = taken_at

    async def rows(self, table: TableShape) -> AsyncIterator[bytes]:
        """Yield the table's rows, each as a line of COPY's text form. Raises DatabaseUnavailable."""
        with _translated():
            async with (
                self._connection.cursor() as cursor,
                cursor.copy(_copy(table, sql.SQL("TO STDOUT"))) as lines,
            ):
                async for line in lines:
                    yield bytes(line)


@asynccontextmanager
async def open_snapshot(url: str) -> AsyncIterator[Snapshot]:
    """Take a snapshot that stays what it is while the block runs. Raises DatabaseUnavailable."""
    async with _connected(url) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        async with connection.transaction():
            cursor = await connection.execute("SELECT now()")
            row = await cursor.fetchone()
            assert row is not None
            yield Snapshot(connection, row[0])


class Load:
    """A transaction that fills empty tables."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def fill(self, table: TableShape, lines: AsyncIterator[bytes]) -> int:
        """Write rows as :meth:`Snapshot.rows` gave them; returns how many. Raises SetupError, DatabaseUnavailable."""
        with _translated():
            async with self._connection.cursor() as cursor:
                async with cursor.copy(_copy(table, sql.SQL("FROM STDIN"))) as copy:
                    async for piece in lines:
                        await copy.write(piece)
                return cursor.rowcount

    async def run(self, statement: str) -> int:
        """Run a statement of ours without parameters; returns how many rows it changed."""
        with _translated():
            return (await self._connection.execute(statement.encode())).rowcount


@asynccontextmanager
async def open_load(url: str) -> AsyncIterator[Load]:
    """Fill tables in one transaction: all of it is kept when the block ends, nothing when it raises."""
    async with _connected(url) as connection, connection.transaction():
        yield Load(connection)


async def settle_loaded(url: str) -> None:
    """Have numbers go on after the highest that was loaded, and the planner know what the tables hold."""
    async with _connected(url) as connection:
        for table in metadata.sorted_tables:
            column = table.autoincrement_column
            if column is not None:
                await connection.execute(_continue(table.name, column.name))
        await connection.execute("ANALYZE")


async def filled_tables(url: str) -> list[str]:
    """Return the names of our tables that hold rows. Raises DatabaseUnavailable."""
    async with _connected(url) as connection:
        return [table.name for table in metadata.sorted_tables if await _holds_rows(connection, table.name)]


async def other_sessions(url: str) -> int:
    """Count the sessions of Slackwater's processes with this database. Raises DatabaseUnavailable."""
    async with _connected(url) as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'slackwater%' AND pid <> pg_backend_pid()"
        )
        row = await cursor.fetchone()
    return row[0] if row else 0


async def _holds_rows(connection: _Connection, table: str) -> bool:
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
    if await cursor.fetchone() != (True,):
        return False
    cursor = await connection.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table)))
    return await cursor.fetchone() == (True,)


def _copy(table: TableShape, direction: sql.SQL) -> sql.Composed:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    return sql.SQL("COPY {} ({}) {}").format(sql.Identifier(table.name), columns, direction)


def _continue(table: str, column: str) -> sql.Composed:
    """Set the sequence behind a column, where there is one, to the first number that is free."""
    return sql.SQL(
        "SELECT setval(s.name, (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
        " FROM (SELECT pg_get_serial_sequence({table_text}, {column_text}) AS name) s WHERE s.name IS NOT NULL"
    ).format(
        column=sql.Identifier(column),
        table=sql.Identifier(table),
        table_text=sql.Literal(table),
        column_text=sql.Literal(column),
    )


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[_Connection]:
    """Connect for as long as the block runs. Raises DatabaseUnavailable."""
    with _translated():
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(url, connect_timeout=5, application_name=_NAME, client_encoding="utf8"), autocommit=True
        )
        try:
            yield connection
        finally:
            await connection.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the driver's errors into ours: no answer is one thing, rows that the schema refuses another."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise DatabaseUnavailable("the database does not answer, or the connection broke; try again") from error
    except psycopg.Error as error:
        raise SetupError(f"the database refused what was asked: {error.diag.message_primary}") from error
