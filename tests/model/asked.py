"""What the customers of an example asked for, and what they may expect of it: the small model of their view."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from slackwater.db.batches import BatchRecord
from slackwater.db.files import NewFile
from slackwater.db.idempotency import Once
from slackwater.domain.ids import BatchId, FileId
from slackwater.flow.intake import BatchRequest
from tests.service import line

Kind = Literal["good", "flaky", "refused", "poison", "twin", "bad"]
KINDS: Final[tuple[Kind, ...]] = (*("good",) * 12, *("flaky", "refused", "poison") * 2, "bad", "twin")
_CONTENT: Final[dict[str, str]] = {
    "good": "hi",
    "flaky": "hi ~fault:503_then_ok~",
    "refused": "hi ~fault:object_error_400~",
    "poison": "hi ~fault:crash~",
    "twin": "hi again",
}
_PLAIN: Final = frozenset({"good", "flaky"})
"""Lines that succeed once they run."""


@dataclass(kw_only=True, eq=False)
class Input:
    """One uploaded file."""

    new: NewFile
    once: Once
    kinds: tuple[Kind, ...]
    deleted: bool = False


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a batch comes to when it completes."""

    fails: bool
    succeeded: frozenset[str]
    total: int


@dataclass(kw_only=True, eq=False)
class Batch:
    """One batch that was asked for."""

    id: BatchId
    request: BatchRequest
    once: Once
    source: Input
    window: timedelta
    created: timedelta
    """When, by the world's clock."""
    cancelled: bool = False
    """Whether a cancel may have reached the service."""
    seen: BatchRecord | None = None
    """As it was shown last."""
    ended: timedelta | None = None
    leases_when_paused: set[Any] | None = None
    """Those of its chunks at the last look, if it was paused then."""
    deleted: set[FileId] = field(default_factory=set)
    """Result files that were deleted."""

    @property
    def expected(self) -> Expected:
        """What its lines come to."""
        kinds = self.source.kinds
        found = effective(kinds)
        # Two results of one name could not be told apart: that is no matter of one line.
        fails = not kinds or "twin" in found or ("bad" in found and self.request.invalid_lines == "fail")
        return Expected(
            fails=fails,
            succeeded=frozenset(names(kinds)[n] for n, kind in enumerate(found) if kind in _PLAIN),
            total=len(kinds),
        )


def names(kinds: tuple[Kind, ...]) -> list[str]:
    """The custom ids: a twin bears the one of the line before it."""
    return [f"r{n - 1 if kind == 'twin' and n else n}" for n, kind in enumerate(kinds)]


def effective(kinds: tuple[Kind, ...]) -> list[Kind]:
    """The kinds as they are: a twin of nothing, or of a line without a readable name, is a line like any other."""
    found: list[Kind] = []
    used: set[str] = set()
    for kind, name in zip(kinds, names(kinds), strict=True):
        found.append("good" if kind == "twin" and name not in used else kind)
        if kind != "bad":
            used.add(name)
    return found


def content(kinds: tuple[Kind, ...]) -> bytes:
    """The lines themselves."""
    return b"".join(_line(kind, name) for kind, name in zip(kinds, names(kinds), strict=True))


def _line(kind: Kind, name: str) -> bytes:
    if kind == "bad":
        return b'{"custom_id": broken\n'
    one: dict[str, Any] = line(name, f"{_CONTENT[kind]} {name}")
    return json.dumps(one).encode() + b"\n"
