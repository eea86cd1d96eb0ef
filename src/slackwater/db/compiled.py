"""Statements written with SQLAlchemy and run past it: compiled once, then run on the hot way (``hot.py``).

For what every request asks and every upload and batch writes. Building, caching and running the same statement through
SQLAlchemy costs several times what the database needs to answer it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ClauseElement
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from slackwater.db.session import Database, DriverTransaction


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A statement as the driver wants it."""

    text: str
    constants: Mapping[str, Any]
    """Parameters whose values stand in the statement itself."""

    async def fetch(self, db: Database, stage: str, **params: object) -> list[Any]:
        """Run it as a transaction of its own; see :meth:`Database.fetch`."""
        return await db.fetch(stage, self.text, {**self.constants, **params})

    async def fetch_in(self, transaction: DriverTransaction, **params: object) -> list[Any]:
        """Run it as a part of a transaction."""
        return await transaction.fetch(self.text, {**self.constants, **params})


def compile_statement(statement: ClauseElement) -> CompiledStatement:
    """Compile a statement whose open parameters are ``bindparam`` by name; an INSERT must name all its columns."""
    compiled = statement.compile(dialect=PGDialect_psycopg())  # type: ignore[no-untyped-call]  # SQLAlchemy left it unannotated
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    return CompiledStatement(str(compiled), constants)
