"""The hot way to the database: single statements on the driver's own pool, past SQLAlchemy, prepared by the server.

Every claim, lease, sync and commit goes this way: a round trip costs a third of what it costs through SQLAlchemy's
asyncio bridge (154 against 605 µs of CPU, measured side by side), and a prepared statement spares the server the
planning, which for the larger ones costs more than running them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg.rows import namedtuple_row
from psycopg_pool import AsyncConnectionPool

_PREPARE_AFTER: Final = 2


class HotPool:
    """A pool of self-committing connections, opened when first used; belongs to one event loop."""

    def __init__(
        self, url: str, options: Mapping[str, Any], *, size: int, timeout_seconds: float, prepare: bool
    ) -> None:
        kwargs = {
            **options,
            "autocommit": True,
            "row_factory": namedtuple_row,
            "prepare_threshold": _PREPARE_AFTER if prepare else None,
        }
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
            url, kwargs=kwargs, min_size=1, max_size=size, timeout=timeout_seconds, open=False, num_workers=1
        )
        self._opening: asyncio.Lock | None = None

    async def fetch(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        """Run one statement as a transaction of its own and return its rows as named tuples.

        Raises the driver's errors. After one that says that a connection is broken every idle connection is tried:
        a server that was restarted has broken them all.
        """
        if self._pool.closed:
            await self._open()
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(statement, params)
                return [] if cursor.description is None else await cursor.fetchall()
        except (psycopg.OperationalError, psycopg.InterfaceError):
            await self._pool.check()
            raise

    async def _open(self) -> None:
        """Open the pool, once however many ask at the same time."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._pool.closed:
                await self._pool.open(wait=False)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        if not self._pool.closed:
            await self._pool.close(timeout=5)
