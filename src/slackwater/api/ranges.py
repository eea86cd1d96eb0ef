"""Which part of a file a request asks for: one range of bytes, of the content the client knows (RFC 9110)."""

import re
from dataclasses import dataclass
from typing import Final

_RANGE: Final = re.compile(r"bytes=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    """All of it: no range was asked for, or one that does not count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A run of bytes; never empty."""

    start: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsatisfiable:
    """A range that lies behind the end."""


def requested_part(
    *, range_header: str | None, if_range: str | None, etag: str, size_bytes: int
) -> Whole | Part | Unsatisfiable:
    """Decide what to send. Several ranges, other units and nonsense are ignored, as the standard allows.

    ``if_range`` that is not this content's tag means that the client holds a part of something else.
    """
    match = _RANGE.fullmatch(range_header or "")
    if match is None or (if_range is not None and if_range.strip() != etag):
        return Whole()
    first, last = match.groups()
    if not first:
        return _suffix(last, size_bytes)
    start = int(first)
    end = min(int(last), size_bytes - 1) if last else size_bytes - 1
    if last and int(last) < start:
        return Whole()  # not a range at all
    return Part(start=start, length=end - start + 1) if start < size_bytes else Unsatisfiable()


def _suffix(last: str, size_bytes: int) -> Whole | Part | Unsatisfiable:
    """Decide on ``bytes=-500``: the last so many bytes."""
    if not last:
        return Whole()
    length = min(int(last), size_bytes)
    return Part(start=size_bytes - length, length=length) if length else Unsatisfiable()
