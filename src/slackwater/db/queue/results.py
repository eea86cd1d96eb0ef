"""Stored objects as rows point at them."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultObject:
    """One stored object of result lines; ``sha256`` is hex."""

    key: str
    size_bytes: int
    sha256: str
    crc32: int | None = None
    """None for one that was written before it was kept."""


class StoredRange(NamedTuple):
    """A run of an object's bytes, and what they must be."""

    key: str
    start: int
    size_bytes: int
    crc32: int
