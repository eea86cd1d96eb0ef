"""The way to the database: it fails at once and with the cause, and it is back as soon as the server is."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import psycopg
import pytest
from sqlalchemy import text

from slackwater.db.session import Database, DriverTransaction, PoolSettings
from slackwater.domain.errors import DatabaseUnavailable

_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> %(own)s"


class RecordingSeam:
    """Notes what is called around each commit."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def before_commit(self, stage: str) -> None:
        self.calls.append(f"before {stage}")

    async def after_commit(self, stage: str) -> None:
        self.calls.append(f"after {stage}")


async def _hang_up_on_all(url: str) -> None:
    """Close every other connection of the database from the server's side, as a restart does."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        own = {"own": connection.info.backend_pid}
        await connection.execute(f"SELECT pg_terminate_backend(pid) {_OTHERS}", own)
        async with asyncio.timeout(20):
            while await (await connection.execute(f"SELECT 1 {_OTHERS}", own)).fetchall():
                await asyncio.sleep(0.02)


async def _until_asleep(url: str) -> None:
    """Wait until some other connection is in the middle of ``pg_sleep``."""
    asleep = f"SELECT 1 {_OTHERS} AND wait_event = 'PgSleep'"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, asyncio.timeout(20):
        while not await (await connection.execute(asleep, {"own": connection.info.backend_pid})).fetchall():
            await asyncio.sleep(0.02)


async def test_idle_connections_that_the_server_closed_cost_nobody_an_error(db: Database, database_url: str) -> None:
    await asyncio.gather(*(db.fetch("test", "SELECT pg_sleep(0.05)", {}) for _ in range(5)))
    async with db.transaction("test") as connection:
        await connection.execute(text("SELECT 1"))

    await _hang_up_on_all(database_url)

    assert [tuple(row) for row in await db.fetch("test", "SELECT 1", {})] == [(1,)]
    async with db.transaction("test") as connection:
        assert (await connection.execute(text("SELECT 2"))).scalar_one() == 2


async def test_a_statement_that_is_cut_off_says_so_and_the_next_one_works(db: Database, database_url: str) -> None:
    cut = asyncio.create_task(db.fetch("test", "SELECT pg_sleep(30)", {}))
    await _until_asleep(database_url)

    await _hang_up_on_all(database_url)

    with pytest.raises(DatabaseUnavailable):
        await cut
    assert len(await db.fetch("test", "SELECT 1", {})) == 1


async def test_a_server_that_is_not_there_is_told_at_once_and_with_the_cause() -> None:
    db = Database.connect("postgresql://nobody@127.0.0.1:1/none")
    started = time.perf_counter()

    with pytest.raises(DatabaseUnavailable) as caught:
        await db.ping()

    assert time.perf_counter() - started < 2
    assert "refused" in str(caught.value.__cause__)
    await db.close()


async def test_more_callers_than_connections_take_turns(database_url: str) -> None:
    db = Database.connect(database_url, pool=PoolSettings(hot=1, other=1))

    rows = await asyncio.gather(*(db.fetch("test", "SELECT %(n)s::int AS n", {"n": n}) for n in range(50)))

    assert [row.n for (row,) in rows] == list(range(50))
    (count,) = await db.fetch("test", f"SELECT count(*) AS n {_OTHERS}", {"own": 0})
    assert count.n <= 3
    await db.close()


async def test_a_caller_that_waits_too_long_for_a_connection_is_told(database_url: str) -> None:
    db = Database.connect(database_url, pool=PoolSettings(hot=1, other=1, timeout_seconds=0.1))
    holds = asyncio.create_task(db.fetch("test", "SELECT pg_sleep(1)", {}))
    await _until_asleep(database_url)

    with pytest.raises(DatabaseUnavailable):
        await db.fetch("test", "SELECT 1", {})

    await holds
    assert len(await db.fetch("test", "SELECT 1", {})) == 1
    await db.close()


async def test_a_caller_that_is_cancelled_leaves_its_connection_fit_for_the_next(database_url: str) -> None:
    db = Database.connect(database_url, pool=PoolSettings(hot=1, other=1))
    for _ in range(3):
        call = asyncio.create_task(db.fetch("test", "SELECT pg_sleep(30)", {}))
        await _until_asleep(database_url)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert len(await db.fetch("test", "SELECT 1", {})) == 1
    await db.close()


async def _table(db: Database) -> None:
    await db.fetch("test", "CREATE TABLE kept (n int)", {})


async def _fails(_transaction: DriverTransaction) -> None:
    raise ZeroDivisionError


async def _is_refused(transaction: DriverTransaction) -> None:
    await transaction.fetch("SELECT 1 / 0", {})


async def _is_hung_up_on(transaction: DriverTransaction) -> None:
    await transaction.fetch("SELECT pg_terminate_backend(pg_backend_pid())", {})


async def _idles_too_long(transaction: DriverTransaction) -> None:
    await transaction.fetch("SET LOCAL idle_in_transaction_session_timeout = 20", {})
    await asyncio.sleep(0.3)
    await transaction.fetch("SELECT 1", {})


async def _is_cancelled_in_a_statement(transaction: DriverTransaction) -> None:
    async with asyncio.timeout(0.1):
        await transaction.fetch("SELECT pg_sleep(30)", {})


async def _is_cancelled_in_a_copy(transaction: DriverTransaction) -> None:
    """The rows are so many that the time is up before their end."""

    def rows() -> Iterator[tuple[int]]:
        for n in range(10_000_000):
            yield (n,)

    async with asyncio.timeout(0.1):
        await transaction.copy("kept", ("n",), rows())


@pytest.mark.parametrize(
    ("breaks", "error"),
    [
        (_fails, ZeroDivisionError),
        (_is_refused, psycopg.errors.DivisionByZero),
        (_is_hung_up_on, DatabaseUnavailable),
        (_idles_too_long, DatabaseUnavailable),
        (_is_cancelled_in_a_statement, TimeoutError),
        (_is_cancelled_in_a_copy, TimeoutError),
    ],
)
async def test_a_transaction_that_does_not_end_well_writes_nothing_and_the_next_one_works(
    database_url: str, breaks: Callable[[DriverTransaction], Awaitable[None]], error: type[Exception]
) -> None:
    seam = RecordingSeam()
    db = Database.connect(database_url, pool=PoolSettings(hot=1, other=1), seam=seam)
    await _table(db)
    seam.calls.clear()

    async def broken() -> None:
        async with db.driver_transaction("broken") as transaction:
            await transaction.fetch("INSERT INTO kept VALUES (1)", {})
            await breaks(transaction)

    with pytest.raises(error):
        await broken()

    assert seam.calls == []
    assert await db.fetch("test", "SELECT n FROM kept", {}) == []
    async with db.driver_transaction("whole") as transaction:
        await transaction.copy("kept", ("n",), [(2,), (3,)])
    assert [row.n for row in await db.fetch("test", "SELECT n FROM kept ORDER BY n", {})] == [2, 3]
    assert [call for call in seam.calls if "whole" in call] == ["before whole", "after whole"]
    await db.close()


async def test_transactions_that_wait_for_a_lock_leave_room_for_single_statements(database_url: str) -> None:
    db = Database.connect(database_url, pool=PoolSettings(hot=4, other=1, timeout_seconds=0.2))
    await _table(db)

    async def insert() -> None:
        async with db.driver_transaction("test") as transaction:
            await transaction.fetch("INSERT INTO kept VALUES (1)", {})

    async with db.transaction("test") as blocker:
        await blocker.execute(text("LOCK TABLE kept"))
        waiting = [asyncio.create_task(insert()) for _ in range(4)]
        await asyncio.wait(waiting, timeout=0.5)
        assert len(await db.fetch("test", "SELECT 1", {})) == 1

    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in ended] == [type(None), type(None), DatabaseUnavailable, DatabaseUnavailable]
    await db.close()
