"""What all tables share: their naming rules and the kinds of columns there are."""

from typing import Final

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, text

metadata: Final = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

NOW: Final = text("now()")


def at(name: str, *, required: bool = False) -> Column[object]:
    """A timestamp column; a required one is set by the database when the row is made."""
    return Column(name, DateTime(timezone=True), nullable=not required, server_default=NOW if required else None)


def count(name: str, kind: type[BigInteger] | type[Integer] = Integer) -> Column[int]:
    """A counter that starts at zero."""
    return Column(name, kind, nullable=False, server_default=text("0"))
