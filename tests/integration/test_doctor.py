"""The doctor on a real database: what it is told there is true."""

import asyncio
import uuid
from datetime import UTC, datetime

import psycopg
import pytest
from pydantic import SecretStr

from slackwater.blobs.store import open_store
from slackwater.cli.doctor_findings import Finding, Verdict
from slackwater.cli.doctor_site import examine_database, examine_store
from slackwater.config import Settings
from slackwater.db.catalog import add_model
from slackwater.db.diagnosis import Leadership, ask_server, find_leadership
from slackwater.db.election import ElectionLock
from slackwater.db.migrate import head_revision, known_revisions, schema_revision
from slackwater.db.queue.leases import elect, register_worker
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable
from slackwater.domain.ids import WorkerId
from tests.s3 import ACCESS_KEY, SECRET_KEY, S3Server


def now() -> datetime:
    return datetime.now(UTC)


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in findings}


def test_a_migrated_database_is_at_the_newest_revision(database_url: str) -> None:
    assert schema_revision(database_url) == head_revision() == known_revisions()[0]


def test_a_database_that_was_never_migrated_has_no_revision(empty_database_url: str) -> None:
    assert schema_revision(empty_database_url) is None


def test_the_revision_of_a_database_that_does_not_answer_is_unknown() -> None:
    with pytest.raises(DatabaseUnavailable):
        schema_revision("postgresql://nobody@127.0.0.1:1/nothing")


async def test_an_empty_database_is_a_fault_and_nothing_more_is_asked_of_it(empty_database_url: str) -> None:
    findings = await examine_database(empty_database_url, now=now)

    assert verdicts(findings)["schema"] is Verdict.FAULT
    assert "leader" not in verdicts(findings)


async def test_a_newer_database_is_a_fault(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    findings = await examine_database(database_url, now=now)

    assert verdicts(findings)["schema"] is Verdict.FAULT


async def test_a_wrong_password_is_told_without_showing_it(database_url: str) -> None:
    _, _, place = database_url.rpartition("@")

    (finding,) = await examine_database(f"postgresql://slackwater:hush-hush@{place}", now=now)

    assert finding.verdict is Verdict.FAULT
    assert "authentication" in finding.found
    assert "hush-hush" not in str(finding)


async def test_a_site_at_work_is_well(db: Database, database_url: str) -> None:
    lock = ElectionLock(database_url)
    assert await lock.try_hold()
    await elect(db, "here-1")
    await add_model(db, model_id="small", actor="test")
    worker = WorkerId("worker-1")
    await register_worker(db, worker_id=worker, incarnation=uuid.UUID(int=1), models=["small"], slots=8)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE workers SET engine_ready = true")

    findings = await examine_database(database_url, now=now)
    await lock.close()

    # The tests' own server never syncs, which the doctor finds.
    assert verdicts(findings) == {
        "database": Verdict.FAULT,
        "clock": Verdict.OK,
        "schema": Verdict.OK,
        "leader": Verdict.OK,
        "workers": Verdict.OK,
        "models": Verdict.OK,
    }


async def test_a_server_that_never_syncs_is_found_out(db: Database) -> None:
    server = await ask_server(db)

    assert (server.major, server.standby, server.survives_power_loss) == (18, False, False)


async def test_a_leader_lives_as_long_as_it_holds_the_election(db: Database, database_url: str) -> None:
    lock = ElectionLock(database_url)
    never = await find_leadership(db)
    await lock.try_hold()
    term = await elect(db, "here-1")
    leading = await find_leadership(db)
    await lock.close()
    left = await _after_it_left(db)

    assert never is None
    assert leading is not None
    assert (leading.term, leading.holder, leading.alive) == (term, "here-1", True)
    assert (left.term, left.holder, left.alive) == (term, "here-1", False)


async def _after_it_left(db: Database) -> Leadership:
    """Ask until nobody leads: the server ends a session a moment after its client has left."""
    async with asyncio.timeout(30):
        while True:
            found = await find_leadership(db)
            if found is not None and not found.alive:
                return found


async def test_a_bucket_is_written_read_and_cleared(seaweedfs: S3Server) -> None:
    settings = _settings_of(seaweedfs, seaweedfs.new_url())

    finding = await examine_store(settings)

    store = open_store(settings.store_url, settings=seaweedfs.settings())
    left = [stored.key async for stored in store.list("")]
    await store.close()
    assert (finding.verdict, left) == (Verdict.OK, [])


async def test_a_bucket_that_is_not_there_is_a_fault(seaweedfs: S3Server) -> None:
    finding = await examine_store(_settings_of(seaweedfs, "s3://never-made"))

    assert finding.verdict is Verdict.FAULT
    assert "slackwater migrate" in finding.advice


def _settings_of(server: S3Server, url: str) -> Settings:
    return Settings(
        store_url=url,
        store_endpoint=server.endpoint,
        store_access_key_id=ACCESS_KEY,
        store_secret_access_key=SecretStr(SECRET_KEY),
    )
