"""Two versions side by side: what the earlier one does to the database works on the schema of this one."""

import asyncio
import re
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import DiagnosticField

from slackwater.blobs.protocol import BlobStore
from slackwater.db.migrate import known_revisions, migrate
from slackwater.db.session import Database
from tests.earlier_schema import EARLIER, earlier_worker, lease_as_before, plan_as_before, submit_as_before
from tests.service import jsonl, line, running_service

LATER = sorted(set(known_revisions()) - {"0001"})

_PARAMETER = re.compile(r"%\((\w+)\)s")


async def test_a_batch_begun_by_the_earlier_version_is_finished_by_this_one(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    tenant, batch = await submit_as_before(db, store, jsonl(line(f"r{n}") for n in range(90)))
    await plan_as_before(db, store, chunk_lines=10)
    worker = earlier_worker(db, store)
    await worker.register()
    assert await lease_as_before(db, worker=worker) == 9
    leases = await worker.leases()
    committed = [await worker.commit(lease) for lease in leases[:4]]
    assert await worker.release(leases[4])
    assert committed == [True] * 4
    # The others are lost with their worker, whose last beat was a minute ago.
    await db.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 minute'", {})

    async with running_service(db, store, database_url, tmp_path) as service:
        service.tenant = tenant
        ended = await service.until(batch)
        report = await service.audit(batch)

    assert (ended.status, ended.succeeded, report.lines) == ("completed", 90, 90)


async def test_a_worker_of_the_earlier_version_works_beside_this_control(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    async with running_service(db, store, database_url, tmp_path, engines=[]) as service:
        worker = earlier_worker(db, store)
        await worker.register()
        batch = await service.submit(line(f"r{n}") for n in range(200))
        done = []
        async with asyncio.timeout(120):
            while (await service.get(batch)).status in {"validating", "in_progress"}:
                for lease in await worker.leases():
                    assert await worker.commit(lease)
                    assert not await worker.commit(lease)  # a lease commits once
                    done.append(lease.n_requests)
                await asyncio.sleep(0.01)
        ended = await service.until(batch)
        await service.audit(batch)

    assert (ended.status, ended.succeeded, sum(done)) == ("completed", 200, 200)


async def test_a_lease_of_the_earlier_version_that_was_taken_away_cannot_commit(
    db: Database, store: BlobStore, database_url: str, tmp_path: Path
) -> None:
    tenant, batch = await submit_as_before(db, store, jsonl(line(f"r{n}") for n in range(20)))
    await plan_as_before(db, store, chunk_lines=10)
    worker = earlier_worker(db, store)
    await worker.register()
    await lease_as_before(db, worker=worker)
    leases = await worker.leases()
    await db.fetch("test", "UPDATE workers SET heartbeat_at = now() - interval '1 minute'", {})

    async with running_service(db, store, database_url, tmp_path) as service:
        service.tenant = tenant
        await service.until(batch)
        assert [await worker.commit(lease) for lease in leases] == [False, False]
        await service.audit(batch)


@pytest.mark.parametrize("revision", LATER)
def test_every_statement_of_the_earlier_version_is_understood_by_every_later_schema(
    empty_database_url: str, revision: str
) -> None:
    migrate(empty_database_url, revision=revision)

    with psycopg.connect(empty_database_url) as connection:
        refused = {name: said for name, text in EARLIER.items() if (said := refusal(connection, name, text))}

    assert refused == {}
    assert len(EARLIER) > 30


def refusal(connection: psycopg.Connection[tuple[object, ...]], name: str, statement: str) -> str | None:
    """Have the server read a statement, without running it; returns what it has against it."""
    names = list(dict.fromkeys(_PARAMETER.findall(statement)))
    numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement).replace("%%", "%")
    prepared = connection.pgconn.prepare(name.encode(), numbered.encode())
    state = prepared.error_field(DiagnosticField.SQLSTATE)
    connection.rollback()
    # The type of a parameter may be left to the driver, which tells it from the value.
    return None if state in {None, b"42P08"} else prepared.error_message.decode()


@pytest.mark.parametrize("revision", LATER)
def test_a_later_schema_takes_rows_that_know_nothing_of_its_columns(empty_database_url: str, revision: str) -> None:
    migrate(empty_database_url, revision="0001")
    with psycopg.connect(empty_database_url) as connection:
        before = mandatory_columns(connection)
    migrate(empty_database_url, revision=revision)
    with psycopg.connect(empty_database_url) as connection:
        after = mandatory_columns(connection)

    assert {column for column in after - before if column[0] in {table for table, _ in before}} == set()


def mandatory_columns(connection: psycopg.Connection[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Columns that an INSERT has to name."""
    return set(
        connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND is_nullable = 'NO' AND column_default IS NULL"
            " AND is_identity = 'NO'"
        ).fetchall()
    )
