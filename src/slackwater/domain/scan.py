"""One pass over an input file, as a pure function of its bytes: what to run, in records; what not, in errors.

The caller reads blocks of any size, hands them in, and stores what comes out; however the file is cut into blocks, the
result is the same. Memory is flat: the rest of a line that has not ended, 8 bytes a line for finding duplicates, and a
hundred errors.
"""

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

import msgspec

from slackwater.domain.bodies import BodyRules, ModelFacts
from slackwater.domain.duplicates import SeenIds
from slackwater.domain.endpoints import Endpoint
from slackwater.domain.input_errors import ErrorList, Problem
from slackwater.domain.limits import InputLimits
from slackwater.domain.line_checks import LineChecker, overlong
from slackwater.domain.line_errors import LineError
from slackwater.domain.lines import BOM, WHITE_SPACE, LineSplitter, is_utf16
from slackwater.domain.records import pack_record
from slackwater.domain.results import Dialect, json_string
from slackwater.domain.sortkeys import PrefixChanges, SortKey, sort_key
from slackwater.domain.strict_json import UTF16
from slackwater.domain.verdicts import Accepted, Invalid, Verdict

FIRST_REFUSED_NUMBER: Final = 1 << 31
"""Numbers of refused lines, of which result ids are made, begin here: above those of all lines that run."""

_NO_CUSTOM_ID: Final = b"null"
_MODEL_OF: Final = itemgetter(0)
_TOO_MANY: Final = "too_many_tasks"
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
        self._many_prompts = endpoint.many_prompts
        self._number = 0
        self._offset = 0
        self._requests = 0
        self._prompts = 0
        self._out = Scanned([], [], [])
        self.errors = ErrorList(limits.max_listed_errors)
        """What fails the batch; repeated custom_ids may come on top."""
        self.refusals: Counter[str] = Counter()
        """What failed single lines only, by code."""
        self.seen = SeenIds()
        self.changes = PrefixChanges()
        """How much the lines to run change from one to the next, in order of the file."""
        self.n_accepted: Counter[int] = Counter()
        """Lines to run, by number of the model."""
        self.accepted_bytes = 0
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
        """Check the lines that end in this block. 4 to 5 µs a line of half a kilobyte, 12 to 15 for four."""
        return self._scan(self._splitter.feed(block))

    def finish(self) -> Scanned:
        """Check what stands after the last line feed, and whether there was anything at all."""
        out = self._scan(self._splitter.finish())
        if not self._requests and not self.stopped:
            self.errors.add(_EMPTY, None)
        return out

    def _scan(self, lines: list[bytes]) -> Scanned:
        out = self._out = Scanned([], [], [])
        self._begin(lines)
        check, keys, custom_ids = self._checker.check, list[SortKey](), list[str]()
        for raw in lines:
            if self.stopped:
                break
            self._number += 1
            start = self._offset
            self._offset = start + len(raw) + 1
            line = raw.strip(WHITE_SPACE)
            if not line:
                continue
            if line is not raw:
                start += len(raw) - len(raw.lstrip(WHITE_SPACE))
            self._requests += 1
            verdict = check(line)
            if type(verdict) is not Accepted or self._requests > self._limits.max_lines:
                self._answer(verdict, start, len(line))
                continue
            key, length, id_start = sort_key(verdict.model, verdict.prefix), len(line), verdict.id_start
            keys.append(key)
            custom_ids.append(verdict.custom_id)
            id_length = verdict.id_stop - id_start
            record = pack_record(*key, length.bit_length(), start, length, self._number, id_start, id_length)
            out.records.append(record)
            self.accepted_bytes += length
            if self._many_prompts:
                self._count_prompts(verdict.prompts)
        self.seen.add(custom_ids)
        self.changes.add(keys)
        self.n_accepted.update(map(_MODEL_OF, keys))
        return out

    def _begin(self, lines: list[bytes]) -> None:
        """Look at the file's first bytes, and account for a line that was too long to be held."""
        dropped = self._splitter.dropped_bytes
        if dropped:
            self._number += 1
            self._requests += 1
            self._answer(overlong(dropped, self._limits), self._offset, dropped)
            self._offset += dropped + 1
        elif self._number == 0 and lines:
            if is_utf16(lines[0]):
                self._number = 1
                self._stop(UTF16)
            if lines[0].startswith(BOM):
                lines[0] = lines[0][len(BOM) :]
                self._offset = len(BOM)

    def _answer(self, verdict: Verdict, start: int, length: int) -> None:
        """Turn a line that will not run into its own error line, or into a failure of the batch."""
        if self._requests > self._limits.max_lines or isinstance(verdict, Accepted):
            most = self._limits.max_lines
            message = f"The file holds more than {most} requests, the most that one batch may have."
            self._stop(Problem(code=_TOO_MANY, message=message))
            return
        problem, custom_id = verdict.problem, verdict.custom_id
        if custom_id is not None:
            self.seen.add((custom_id,))
        if isinstance(verdict, Invalid) and (problem.undecodable or not self._tolerant):
            self.errors.add(problem, self._number)
            return
        self.refusals[problem.code] += 1
        token = _NO_CUSTOM_ID if custom_id is None else json_string(custom_id)
        error = LineError(status=problem.status, message=problem.message, param=problem.param, code=problem.code)
        number = FIRST_REFUSED_NUMBER + self.n_refused
        self._out.error_lines.append(self._dialect.failure(number, token, error))
        self._out.refused_records.append(pack_record(0, 0, 0, 0, 0, 0, start, length, self._number, 0, 0))
        self.n_refused += 1

    def _count_prompts(self, prompts: int) -> None:
        self._prompts += prompts
        most = self._limits.max_embedding_inputs
        if self._prompts > most:
            message = f"The file holds more than {most} inputs, the most that one batch may have."
            self._stop(Problem(code=_TOO_MANY, message=message))

    def _stop(self, problem: Problem) -> None:
        self.errors.add(problem, self._number)
        self.stopped = True
