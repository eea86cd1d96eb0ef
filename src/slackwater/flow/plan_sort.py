"""The order of a plan: sorts the records in flat memory, and tells whether any of it is worth writing the plan anew.

Runs of records are sorted in memory, put back on scratch, and merged as they are read.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from slackwater.domain.records import RECORD_BYTES, read_record, split_records
from slackwater.domain.sortkeys import PrefixChanges
from slackwater.flow.plan_scratch import ScratchFile

RUN_RECORDS: Final = 100_000
"""Sorted at a time: some 10 MB."""
_PIECE_RECORDS: Final = 2_000

LEAST_GAIN: Final = 0.02
"""Levels of prefix that a line must gain on average: below, sorting costs more than it saves."""


class SortedRecords:
    """The records of a plan in the order in which they will run. Blocks on the disk: use it in a thread."""

    def __init__(self, records: ScratchFile, spare: ScratchFile, *, run_records: int = RUN_RECORDS) -> None:
        """``records`` are in order of the file; ``spare`` is an empty file."""
        self._run_bytes = run_records * RECORD_BYTES
        self.n_records = records.size_bytes // RECORD_BYTES
        self._changes_within_runs = 0
        self._spare = spare
        self._only_run: list[bytes] | None = None
        for start in range(0, records.size_bytes, self._run_bytes):
            run = split_records(records.read(start, self._run_bytes))
            run.sort()
            self._changes_within_runs += _changes(run)
            if self.n_records <= run_records:
                self._only_run = run
            else:
                spare.append(b"".join(run))

    def __iter__(self) -> Iterator[bytes]:
        if self._only_run is not None:
            return iter(self._only_run)
        starts = range(0, self._spare.size_bytes, self._run_bytes)
        return heapq.merge(*(read_run(self._spare, start, self._run_bytes) for start in starts))

    def gains(self, changes_unsorted: int) -> bool:
        """Tell whether this order shares enough more than one with so many changes from line to line."""
        least = self.n_records * LEAST_GAIN
        # The merge can only bring more of the same together, so this is a lower bound, and it is often enough.
        if changes_unsorted - self._changes_within_runs >= least:
            return True
        return self._only_run is None and changes_unsorted - _changes(self) >= least


def read_run(file: ScratchFile, start: int, length: int) -> Iterator[bytes]:
    """Read the packed records of a part of a file, a piece at a time."""
    step = _PIECE_RECORDS * RECORD_BYTES
    stop = min(start + length, file.size_bytes)
    for begin in range(start, stop, step):
        yield from split_records(file.read(begin, min(step, stop - begin)))


def _changes(records: Iterable[bytes]) -> int:
    changes = PrefixChanges()
    changes.add(read_record(packed)[:5] for packed in records)
    return changes.total
