"""Result objects as rows point at them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultObject:
    """One stored object of result lines; ``sha256`` is hex."""

    key: str
    size_bytes: int
    sha256: str
