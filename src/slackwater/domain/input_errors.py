"""Why a batch's input, or one line of it, is refused: the entries of ``batch.errors.data``.

A message is safe to show and says what was expected. Codes are the API's vocabulary for batch validation; it is an
open set, and so is ours: ``invalid_json_line``, ``missing_required_parameter``, ``invalid_request``,
``invalid_custom_id``, ``duplicate_custom_id``, ``invalid_method``, ``invalid_url``, ``streaming_unsupported``,
``model_not_found``, ``mismatched_model``, ``line_too_long``, ``empty_file``, ``too_many_tasks``, ``input_too_large``,
``input_unavailable``, ``input_damaged``; for a line that is its own problem ``context_length_exceeded`` and
``invalid_value``.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

LONGEST_ECHO: Final = 200
"""Characters of a customer's own text that a message repeats."""


class InputError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of ``batch.errors.data``."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None
    """The physical line in the file, counted from 1, blank lines included; None where the whole file is meant."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is wrong with a line, whichever line it is."""

    code: str
    message: str
    param: str | None = None
    """A path from the line's top (``body.model``), None where the line as a whole is meant."""
    status: int = 400
    """The HTTP status that the same request would get if it were sent alone."""
    undecodable: bool = False
    """The file is not UTF-8: no line of it can be trusted, whatever ``invalid_lines`` says."""
    fragment: bool = False
    """The line could be a piece of a value that is spread over several lines."""
    opens: bool = False
    """The line begins such a value."""

    def at(self, line: int | None) -> InputError:
        """Return the problem as an entry for one line."""
        return InputError(code=self.code, message=self.message, param=self.param, line=line)


class ErrorList:
    """The errors of one file in the order of its lines: the first few whole, all of them counted.

    A pretty-printed file would give an error for every line of every object. Lines that look like the rest of a value
    begun on a line before them are therefore taken as part of that one error.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[InputError] = []
        self._open_line: int | None = None
        self.counts: Counter[str] = Counter()
        """How many by code; pieces of a value begun before them are not counted."""

    def add(self, problem: Problem, line: int | None) -> None:
        """Take note of one error. Lines come in order."""
        if problem.fragment and line is not None and line - 1 == self._open_line:
            self._open_line = line
            return
        self._open_line = line if problem.opens else None
        self.counts[problem.code] += 1
        if len(self._kept) < self._limit:
            self._kept.append(problem.at(line))

    def __len__(self) -> int:
        return self.counts.total()

    def entries(self, more: Iterable[InputError] = (), n_more: int = 0) -> list[InputError]:
        """Return at most ``limit`` entries by line, the last of which tells how many are missing.

        ``more`` are errors found elsewhere, of which there are ``n_more`` in all.
        """
        found = sorted([*self._kept, *more], key=lambda error: error.line or 0)
        return capped(found, total=len(self) + n_more, limit=self._limit)


def capped(errors: list[InputError], *, total: int, limit: int) -> list[InputError]:
    """Keep the first ``limit`` errors of ``total``; the last one's message says how many are not listed."""
    kept = errors[:limit]
    missing = total - len(kept)
    if missing > 0 and kept:
        last = kept[-1]
        words = "1 more error is not listed." if missing == 1 else f"{missing} more errors are not listed."
        kept[-1] = msgspec.structs.replace(last, message=f"{last.message} ({words})")
    return kept


def quoted(text: str) -> str:
    """Repeat a customer's text in a message: quoted, on one line, and not at any length."""
    shown = text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"
    return "'" + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in shown) + "'"
