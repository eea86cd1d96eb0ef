"""One pass over an input file, as a pure function of its bytes: what to run, in records; what not, in errors.

The caller reads blocks of any size, hands them in, and stores what comes out; however the file is cut into blocks, the
result is the same. Memory is flat: the rest of a line that has not ended, 8 bytes a line for finding duplicates, and a
hundred errors.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from slackwater.domain.bodies import BodyRules, ModelFacts
from slackwater.domain.duplicates import Seen
from slackwater.domain.endpoints import Endpoint
from slackwater.domain.input_errors import ErrorList, Problem
from slackwater.domain.limits import InputLimits
from slackwater.domain.line_checks import LineChecker
from slackwater.domain.line_errors import LineError
from slackwater.domain.lines import WHITE_SPACE, LineSplitter, is_utf16
from slackwater.domain.records import pack_record
from slackwater.domain.results import Dialect, json_string
from slackwater.domain.sortkeys import sort_key
from slackwater.domain.strict_json import UTF16
from slackwater.domain.tally import Tally
from slackwater.domain.verdicts import Accepted, Invalid, Refused

FIRST_REFUSED_NUMBER: Final = 1 << 31
"""Numbers of refused lines, of which result ids are made, begin here: above those of all lines that run."""

_NO_CUSTOM_ID: Final = b"null"
_EMPTY: Final = Problem(code="empty_file", message="The file holds no requests.")


class Scanned(msgspec.Struct, gc=False):
    """What one block gave, to be appended to what the blocks before it gave."""

    records: list[bytes]
    """Of the lines to run, in order of the file."""
    refused_records: list[bytes]
    """Of the lines that are answered already, in the same layout; only place, number and custom_id are set."""
    error_lines: list[bytes]
    """The answers, one for each refused record."""


class InputScan:
    """The pass itself: :meth:`feed` every block, then :meth:`finish`."""

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        models: Mapping[str, ModelFacts],
        rules: BodyRules,
        limits: InputLimits,
        dialect: Dialect,
        tolerant: bool,
    ) -> None:
        """``tolerant``: an invalid line becomes an error line of its own instead of failing the batch."""
        self._limits = limits
        self._dialect = dialect
        self._tolerant = tolerant
        self._splitter = LineSplitter(limits.max_line_bytes)
        self._checker = LineChecker(endpoint=endpoint, models=models, rules=rules, limits=limits)
        # A line of any other endpoint is one prompt, so that its limit on lines is one on prompts.
        self._most_prompts = limits.max_embedding_inputs if endpoint.many_prompts else limits.max_lines
        self.tally = Tally()
        self._out = Scanned([], [], [])
        self.errors = ErrorList(limits.max_listed_errors)
        """What fails the batch; repeated custom_ids may come on top."""
        self.refusals: Counter[str] = Counter()
        """What failed single lines only, by code."""
        self.seen = Seen()
        """The custom_ids."""
        self.n_refused = 0
        self.stopped = False
        """Set when a limit is reached, or when the file is no text at all: the rest need not be read."""

    @property
    def models(self) -> list[str]:
        """The served models of the lines to run; a record's ``model`` is an index into them."""
        return self._checker.models

    @property
    def asked_model(self) -> str | None:
        """The name that all lines use; None where they use several, or none."""
        names = list(self._checker.names)
        return names[0] if len(names) == 1 else None

    def feed(self, block: bytes) -> Scanned:
        """Check the lines that end in this block. About 4 µs a line of half a kilobyte, 10 for four."""
        return self._scan(self._splitter.feed(block))

    def finish(self) -> Scanned:
        """Check what stands after the last line feed, and whether there was anything at all."""
        out = self._scan(self._splitter.finish())
        if not self.tally.requests and not self.stopped:
            self.errors.add(_EMPTY, None)
        return out

    def _scan(self, lines: list[bytes]) -> Scanned:
        tally, checker = self.tally, self._checker
        tally.records, tally.custom_ids = [], []
        out = self._out = Scanned(tally.records, [], [])
        self._begin(lines)
        following = iter(lines)
        raw = next(following, None)
        while raw is not None and not self.stopped:
            number = tally.number
            # Near a limit every line is counted before it is taken.
            for run in checker.lanes if self._has_room(len(lines)) else ():
                raw = run(raw, following, tally)
                if raw is None or tally.number > number:
                    checker.fast_lines += tally.number - number
                    break
            else:
                self._take(raw)
                raw = next(following, None)
        self.seen.add(tally.custom_ids)
        return out

    def _has_room(self, n_lines: int) -> bool:
        tally = self.tally
        return n_lines <= min(self._limits.max_lines - tally.requests, self._most_prompts - tally.prompts)

    def _begin(self, lines: list[bytes]) -> None:
        """Look at the file's first bytes, and account for a line that was too long to be held."""
        tally, splitter = self.tally, self._splitter
        if tally.number == 0:
            tally.offset = splitter.mark_bytes
            if lines and is_utf16(lines[0]):
                tally.number = 1
                self._stop(UTF16)
        if splitter.dropped_bytes:
            start = tally.offset
            tally.number += 1
            tally.offset += splitter.dropped_bytes + 1
            if not splitter.dropped_blank and self._count():
                self._answer(self._overlong(splitter.dropped_bytes), start, splitter.dropped_bytes)

    def _take(self, raw: bytes) -> None:
        """Take one line, whatever it is."""
        start, line = self.tally.offset, raw.strip(WHITE_SPACE)
        self.tally.number += 1
        self.tally.offset += len(raw)
        if not line or not self._count():
            return
        # The white space around a line is not part of it, but it has to be held as well.
        raw_length = len(raw.removesuffix(b"\n"))
        if raw_length > self._limits.max_line_bytes:
            self._answer(self._overlong(raw_length), start, raw_length)
            return
        start += len(raw) - len(raw.lstrip(WHITE_SPACE))
        verdict = self._checker.check(line)
        if isinstance(verdict, Accepted):
            self._accept(verdict, start, len(line))
        else:
            self._answer(verdict, start, len(line))

    def _count(self) -> bool:
        """Count a line that is not blank; False when it is one too many, and the end of the scan."""
        self.tally.requests += 1
        within = self.tally.requests <= self._limits.max_lines
        if not within:
            self._stop_at_limit(self._limits.max_lines, "requests")
        return within

    def _overlong(self, length: int) -> Invalid:
        message = f"This line has {length} bytes; at most {self._limits.max_line_bytes} are allowed."
        return Invalid(None, Problem(code="line_too_long", message=message))

    def _accept(self, verdict: Accepted, start: int, length: int) -> None:
        tally = self.tally
        key, id_length = sort_key(verdict.model, verdict.prefix), verdict.id_stop - verdict.id_start
        record = pack_record(*key, length.bit_length(), start, length, tally.number, verdict.id_start, id_length)
        tally.records.append(record)
        tally.custom_ids.append(verdict.custom_id.encode())
        tally.n_accepted[verdict.model] += 1
        tally.accepted_bytes += length
        tally.prompts += verdict.prompts
        if tally.prompts > self._most_prompts:
            self._stop_at_limit(self._most_prompts, "inputs")

    def _answer(self, verdict: Refused | Invalid, start: int, length: int) -> None:
        """Turn a line that will not run into its own error line, or into a failure of the batch."""
        problem, custom_id, number = verdict.problem, verdict.custom_id, self.tally.number
        if custom_id is not None:
            self.tally.custom_ids.append(custom_id.encode())
        if isinstance(verdict, Invalid) and (problem.undecodable or not self._tolerant):
            self.errors.add(problem, number)
            return
        self.refusals[problem.code] += 1
        token = _NO_CUSTOM_ID if custom_id is None else json_string(custom_id)
        error = LineError(status=problem.status, message=problem.message, param=problem.param, code=problem.code)
        self._out.error_lines.append(self._dialect.failure(FIRST_REFUSED_NUMBER + self.n_refused, token, error))
        self._out.refused_records.append(pack_record(0, 0, 0, 0, 0, 0, start, length, number, 0, 0))
        self.n_refused += 1

    def _stop_at_limit(self, most: int, what: str) -> None:
        message = f"The file holds more than {most} {what}, the most that one batch may have."
        self._stop(Problem(code="too_many_tasks", message=message))

    def _stop(self, problem: Problem) -> None:
        self.errors.add(problem, self.tally.number)
        self.stopped = True
