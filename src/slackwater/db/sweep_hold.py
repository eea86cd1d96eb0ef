"""Who may delete objects now: the sweepers, any number of them, or nobody while a backup or a restore needs them all.

One PostgreSQL advisory lock, shared by sweepers for the length of a pass and held alone by a backup. It lives with its
session, so whoever dies gives it up; not to be put behind a transaction pooler.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import make_conninfo

from slackwater.domain.errors import DatabaseUnavailable, SetupError

_LOCK_KEY: Final = 0x51ACC_5EEB
_ANSWER_SECONDS: Final = 10.0
_SESSION: Final = (
    # A holder whose machine vanished is noticed within half a minute; one that waits for objects is not idle.
    "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c idle_session_timeout=0"
)

_Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]


@asynccontextmanager
async def sweep_allowed(url: str) -> AsyncIterator[bool]:
    """Tell whether objects may be deleted; if so, no backup begins before the block ends. Raises DatabaseUnavailable.

    Costs a connection a pass: passes are seconds apart.
    """
    async with _session(url, "slackwater sweep") as connection:
        yield bool(await _scalar(connection, "SELECT pg_try_advisory_lock_shared(%s)"))


class SweepHold:
    """A hold on every deletion."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def check(self) -> None:
        """Raise SetupError where the hold was lost meanwhile, with its connection: objects may have gone since."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._connection.execute("SELECT 1")
        except (TimeoutError, psycopg.Error) as error:
            raise SetupError(
                "the connection that kept objects from being deleted broke; run the command again"
            ) from error


@asynccontextmanager
async def sweeping_held(url: str, *, wait_seconds: float) -> AsyncIterator[SweepHold]:
    """Keep every sweeper from deleting objects while the block runs, once the passes under way have ended.

    Raises SetupError where they do not end in time or somebody else holds them off, DatabaseUnavailable.
    """
    async with _session(url, "slackwater backup") as connection:
        try:
            await connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{wait_seconds:.3f}s",))
            await connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK_KEY,))
        except psycopg.errors.LockNotAvailable as error:
            raise SetupError("another backup or restore is under way, or a sweep that takes long; try again") from error
        yield SweepHold(connection)


@asynccontextmanager
async def _session(url: str, name: str) -> AsyncIterator[_Connection]:
    """Connect for as long as the block runs. Raises DatabaseUnavailable."""
    conninfo = make_conninfo(url, connect_timeout=5, application_name=name, options=_SESSION)
    try:
        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable("the database does not answer; try again shortly") from error
    try:
        yield connection
    finally:
        await connection.close()


async def _scalar(connection: _Connection, statement: str) -> object:
    """Ask for one value about the lock. Raises DatabaseUnavailable."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            cursor = await connection.execute(statement.encode(), (_LOCK_KEY,))
            row = await cursor.fetchone()
    except (TimeoutError, psycopg.OperationalError) as error:
        raise DatabaseUnavailable("the database does not answer; try again shortly") from error
    return row and row[0]
