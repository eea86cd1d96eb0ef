"""Who leads: one process at a time, another soon after it falls silent, and never nobody for good."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from slackwater.db.accounts import create_tenant
from slackwater.db.election import ElectionLock
from slackwater.db.queue.leases import elect, load_tags, save_tags
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable
from slackwater.domain.ids import TenantId
from slackwater.flow.schedule import Leader

TENANT = ("tenant", "model")

MakeLeader = Callable[[str], Leader]


@pytest.fixture
async def leader(db: Database, database_url: str) -> AsyncIterator[MakeLeader]:
    """Make candidates for the lead; each is closed at the end."""
    made: list[Leader] = []

    def make(holder: str) -> Leader:
        one = Leader(
            db=db, lock=ElectionLock(database_url), holder=holder, granted=lambda _: None, reaped=lambda _: None
        )
        made.append(one)
        return one

    yield make
    for one in made:
        await one.close()


async def tick_until(condition: Callable[[], bool], once: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await once()
            await asyncio.sleep(0.02)


def end_sessions(database_url: str) -> None:
    """End every election connection, as a server that hears nothing does."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'slackwater leader' AND datname = current_database()"
        )


async def test_a_leader_that_lost_its_connection_begins_again_as_a_follower(
    leader: MakeLeader, database_url: str
) -> None:
    first, second = leader("first"), leader("second")
    await tick_until(lambda: first.term is not None, first.schedule_once)

    end_sessions(database_url)
    await tick_until(lambda: second.term is not None, second.schedule_once)
    await tick_until(lambda: first.term is None, first.schedule_once)
    for _ in range(10):
        await first.schedule_once()

    assert first.term is None
    assert second.term == 2


async def test_a_holder_whose_term_was_overtaken_begins_another(leader: MakeLeader, db: Database) -> None:
    holder = leader("holder")
    await tick_until(lambda: holder.term is not None, holder.schedule_once)

    # A process that froze between winning the lock and beginning its term thaws now.
    late = await elect(db, "late")
    await tick_until(lambda: holder.term is not None and holder.term > late, holder.schedule_once)

    assert holder.term == late + 1


async def test_a_leader_keeps_its_term_while_it_is_heard(leader: MakeLeader) -> None:
    holder = leader("holder")
    await tick_until(lambda: holder.term is not None, holder.schedule_once)

    beats_until = asyncio.get_running_loop().time() + 6.0
    await tick_until(lambda: asyncio.get_running_loop().time() > beats_until, holder.schedule_once)

    assert holder.term == 1


async def test_a_lock_whose_server_is_away_is_not_held(database_url: str) -> None:
    lock = ElectionLock(database_url)
    assert await lock.try_hold()

    end_sessions(database_url)
    async with asyncio.timeout(30):
        while lock.held:
            await asyncio.sleep(0.02)

    assert await lock.try_hold()
    await lock.close()


async def test_nobody_leads_without_a_server() -> None:
    with pytest.raises(DatabaseUnavailable):
        await ElectionLock("postgresql://127.0.0.1:1/none").try_hold()


async def test_an_old_leader_saves_nobodys_share(db: Database) -> None:
    await create_tenant(db, tenant_id=TenantId("tenant"), name="acme", actor="test")
    old = await elect(db, "old")
    await save_tags(db, old, {TENANT: 1.0})
    new = await elect(db, "new")
    await save_tags(db, new, {TENANT: 2.0})

    await save_tags(db, old, {TENANT: 1.5})

    assert await load_tags(db) == {TENANT: 2.0}
