"""Migrated databases for sites that outlive one test."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from slackwater.embedded.postgres import EmbeddedPostgres

_TEMPLATE: Final = "slackwater_template"  # made by tests/conftest.py
_names = itertools.count(1)


@contextmanager
def fresh_database(server: EmbeddedPostgres) -> Iterator[str]:
    """Make a migrated database; it is dropped with the block. Yields its URL."""
    name = f"cases_{next(_names)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
    yield f"{server.url.rpartition('/')[0]}/{name}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def cut_connections(server: EmbeddedPostgres, database: str) -> None:
    """End every session of a database, as a failing server or network does."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])
