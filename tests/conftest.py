"""Fixtures for everybody: one real PostgreSQL a session, a fresh migrated database a test, a local object store."""

import itertools
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import psycopg
import pytest
from hypothesis import settings

from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.store import open_store
from slackwater.db.migrate import migrate
from slackwater.db.session import Database, PoolSettings
from slackwater.embedded.postgres import EmbeddedPostgres

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("slackwater", deadline=None)
settings.load_profile("slackwater")

# A suite that a shell starts in its background inherits an ignored SIGINT, and every program it starts after it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ("tests.s3", "tests.engines", "tests.grouping")

_TEMPLATE = "slackwater_template"
_names = itertools.count(1)


def _url_of(server_url: str, database: str) -> str:
    base, _, _ = server_url.rpartition("/")
    return f"{base}/{database}"


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A real PostgreSQL 18 for the whole session; it never syncs, for speed."""
    folder = tmp_path_factory.mktemp("postgres")
    server = EmbeddedPostgres(folder, token="t" * 43, fast_unsafe=True, max_connections=300)
    server.start()
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {_TEMPLATE}")
        migrate(_url_of(server.url, _TEMPLATE))
        yield server
    finally:
        server.stop()


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database of the test's own without any table."""
    yield from _database(postgres_server, template="template1")


@pytest.fixture
def database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A migrated database of the test's own."""
    yield from _database(postgres_server, template=_TEMPLATE)


def _database(server: EmbeddedPostgres, *, template: str) -> Iterator[str]:
    name = f"test_{next(_names)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield _url_of(server.url, name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """A connected pool to a migrated database of the test's own."""
    database = Database.connect(database_url, pool=PoolSettings(hot=8, other=4))
    yield database
    await database.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[BlobStore]:
    """An object store in a folder of the test's own."""
    blobs = open_store(f"file://{tmp_path / 'objects'}")
    yield blobs
    await blobs.close()
