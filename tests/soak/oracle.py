"""The soak's own judge: what must have come of each line, from the files that the customer downloaded. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.soak.lines import Asked, Kind, answer_digest

_STOPPED: Final = {"cancelled": "batch_cancelled", "expired": "batch_expired"}
_ANSWERABLE: Final = frozenset({Kind.GOOD, Kind.FLAKY})


@dataclass(kw_only=True, slots=True)
class Verdict:
    """What is wrong with the results of one batch, or of several added up; all zero is as it should be."""

    lines: int = 0
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Error lines by what their line was and by their code."""
    lost: int = 0
    """Lines without a result."""
    doubled: int = 0
    """Lines with more than one."""
    crossed: int = 0
    """Lines that were given the answer to another one."""
    innocent: int = 0
    """Lines that ended in an error without any reason of their own or of their batch's."""
    undeserved: int = 0
    """Lines with an answer that cannot have one."""
    strange: int = 0
    """Results that nobody asked for."""
    miscounted: int = 0
    """Batches whose counts are not those of their files."""

    def add(self, other: "Verdict") -> None:
        """Add another batch's."""
        self.errors.update(other.errors)
        for name in (*WRONGS, "lines", "answered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def wrongs(self) -> dict[str, int]:
        """What is wrong, by name."""
        return {name: getattr(self, name) for name in WRONGS if getattr(self, name)}


WRONGS: Final = ("lost", "doubled", "crossed", "innocent", "undeserved", "strange", "miscounted")


def judge(
    asked: Sequence[Asked], endpoint: str, status: str, output: bytes, errors: bytes, *, counts: tuple[int, int, int]
) -> Verdict:
    """Judge a batch that ended as ``status`` with these files; ``counts`` are its total, completed and failed."""
    verdict = Verdict(lines=len(asked))
    by_id = {line.custom_id: line for line in asked}
    answers, failures = _rows(output), _rows(errors)
    results = Counter(row["custom_id"] for row in (*answers, *failures))
    verdict.lost = sum(1 for custom_id in by_id if custom_id not in results)
    verdict.doubled = sum(1 for custom_id, times in results.items() if times > 1)
    verdict.strange = sum(1 for custom_id in results if custom_id not in by_id)
    verdict.answered = len(answers)
    verdict.miscounted = int(counts != (len(asked), len(answers), len(failures)))
    for row in answers:
        line = by_id.get(row["custom_id"])
        if line is not None:
            verdict.undeserved += line.kind not in _ANSWERABLE
            verdict.crossed += answer_digest(endpoint, row["response"]["body"]) not in {line.digest, None}
    for row in failures:
        line = by_id.get(row["custom_id"])
        if line is not None:
            code = _code(row)
            verdict.errors[f"{line.kind.value}: {code}"] += 1
            verdict.innocent += line.kind in _ANSWERABLE and code != _STOPPED.get(status)
    return verdict


def judge_refused(asked: Iterable[Asked], reasons: int) -> Verdict:
    """Judge a batch that ended as failed: rightly, where a line of it was invalid and it says so."""
    lines = list(asked)
    right = any(line.kind is Kind.INVALID for line in lines) and reasons > 0
    return Verdict(lines=len(lines), innocent=0 if right else len(lines))


def _rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(row) for row in data.split(b"\n") if row]


def _code(row: dict[str, Any]) -> str:
    """Return the code of an error line, or the status of the answer that is to blame."""
    if row["error"] is not None:
        return str(row["error"]["code"])
    return f"HTTP {row['response']['status_code']}"
