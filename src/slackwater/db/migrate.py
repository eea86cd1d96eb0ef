"""Bring a database to this version's schema, and tell how far it is. The migrations are shipped in the wheel."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from slackwater.db.session import driver_url
from slackwater.domain.errors import DatabaseUnavailable

_LOCK_KEY = 0x51ACC

_CHECKOUT_MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"


@contextmanager
def _migrations() -> Iterator[Path]:
    """Give the folder of the migrations."""
    packaged = files("slackwater").joinpath("migrations")
    if packaged.is_dir():
        with as_file(packaged) as location:
            yield location
    else:  # an editable checkout: the folder stands at the top
        yield _CHECKOUT_MIGRATIONS


def _config(url: str, location: Path) -> Config:
    """Build alembic's configuration without a file; a % in a password is not an interpolation."""
    config = Config()
    config.set_main_option("script_location", str(location))
    config.set_main_option("sqlalchemy.url", driver_url(url).replace("%", "%%"))
    return config


def migrate(url: str, *, revision: str = "head") -> None:
    """Apply every missing migration. Safe to call from many processes at once: an advisory lock makes them take turns.

    Blocking: call it before any event loop runs, or from a thread.
    """
    with _turn(url), _migrations() as location:
        command.upgrade(_config(url, location), revision)


def rebuild(url: str, *, revision: str) -> None:
    """Drop every table of ours, with all rows, and make them anew and empty as of a revision. Turns as for migrate."""
    with _turn(url), _migrations() as location:
        command.downgrade(_config(url, location), "base")
        command.upgrade(_config(url, location), revision)


@contextmanager
def _turn(url: str) -> Iterator[None]:
    """Hold the lock by which processes that change the schema take turns."""
    engine = create_engine(driver_url(url))
    try:
        with engine.connect() as lock:
            lock.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
            try:
                yield
            finally:
                lock.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK_KEY})
                lock.rollback()
    finally:
        engine.dispose()


def schema_revision(url: str) -> str | None:
    """Return the revision a database is at; None where it was never migrated. Raises DatabaseUnavailable.

    Blocking, as :func:`migrate` is.
    """
    engine = create_engine(driver_url(url), connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except OperationalError as error:
        raise DatabaseUnavailable("the database does not answer; its schema is not known") from error
    finally:
        engine.dispose()


def head_revision() -> str:
    """Return the revision that this version of the service works with."""
    return known_revisions()[0]


def known_revisions() -> tuple[str, ...]:
    """Return every revision this version knows, the newest first."""
    with _migrations() as location:
        scripts = ScriptDirectory(str(location))
        return tuple(script.revision for script in scripts.walk_revisions())
