"""The migrations make exactly the schema that the code has in its tables."""

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from slackwater.db.migrate import migrate
from slackwater.db.session import driver_url
from slackwater.db.tables import metadata
from slackwater.domain.states import BatchState, ChunkState


def test_the_migrations_make_the_schema_of_the_tables(database_url: str) -> None:
    engine = create_engine(driver_url(database_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    migrate(empty_database_url)
    migrate(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0003",)]


@pytest.mark.parametrize(
    ("constraint", "states"),
    [("batches_status_check", list(BatchState)), ("chunks_state_check", list(ChunkState))],
)
def test_the_checks_name_exactly_the_states_of_the_core(
    database_url: str, constraint: str, states: list[BatchState | ChunkState]
) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", (constraint,)
        ).fetchone()
    assert row is not None
    assert sorted(part.split("'")[1] for part in row[0].split("ARRAY[")[1].split(", ")) == sorted(states)
