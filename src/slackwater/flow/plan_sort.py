"""The order of a plan: sorts the records in flat memory, and tells whether any of it is worth writing the plan anew.

Runs of records are sorted in memory, put back on scratch, and merged as they are read.
"""

import heapq
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean
from typing import Final

from slackwater.domain.duplicates import Seen
from slackwater.domain.records import RECORD_BYTES, split_records
from slackwater.domain.sortkeys import DEEPEST, FIRST_LEVEL_BYTES, mean_sharing, some_neighbours
from slackwater.flow.plan_scratch import ScratchFile

RUN_RECORDS: Final = 100_000
"""Sorted at a time: some 9 MB."""
_PIECE_RECORDS: Final = 2_000

LEAST_GAIN: Final = 0.02
"""Levels of prefix that a line must gain on average: below, sorting costs more than it saves."""


class SortedRecords:
    """The records of a plan in the order in which they will run. For ``PlanScratch.off_loop_if_long``."""

    def __init__(self, records: ScratchFile, spare: ScratchFile) -> None:
        """``records`` are in order of the file; ``spare`` is an empty file."""
        self._run_bytes = RUN_RECORDS * RECORD_BYTES
        self._spare = spare
        self._only_run: list[bytes] | None = None
        self._unsorted: list[float] = []
        self._sorted: list[float] = []
        for start in range(0, records.size_bytes, self._run_bytes):
            run = list(read_run(records, start, self._run_bytes))
            self._unsorted.append(mean_sharing(some_neighbours(run)))
            run.sort()
            self._sorted.append(mean_sharing(some_neighbours(run)))
            if records.size_bytes <= self._run_bytes:
                self._only_run = run
            else:
                # A piece at a time: the run is the most that stands in memory, not the run and its copy.
                for begin in range(0, len(run), _PIECE_RECORDS):
                    spare.append(b"".join(run[begin : begin + _PIECE_RECORDS]))

    def __iter__(self) -> Iterator[bytes]:
        if self._only_run is not None:
            return iter(self._only_run)
        starts = range(0, self._spare.size_bytes, self._run_bytes)
        return heapq.merge(*(read_run(self._spare, start, self._run_bytes) for start in starts))

    def gains(self) -> bool:
        """Tell whether the lines share enough more in this order than in the file's to be worth another copy."""
        before = fmean(self._unsorted)
        # Merging only brings more of the same together: what the runs gain alone is often enough, and costs nothing.
        if fmean(self._sorted) - before >= LEAST_GAIN:
            return True
        return self._only_run is None and mean_sharing(pairwise(self)) - before >= LEAST_GAIN


def may_gain(records: ScratchFile) -> bool:
    """Tell, for less than sorting costs, whether any order could gain: not where hardly two prompts begin alike."""
    beginnings = Seen()
    beginnings.add(packed[:FIRST_LEVEL_BYTES] for packed in read_run(records, 0, records.size_bytes))
    _, repeated = beginnings.repeated()
    return repeated * (DEEPEST - 1) >= records.size_bytes // RECORD_BYTES * LEAST_GAIN


def read_run(file: ScratchFile, start: int, length: int) -> Iterator[bytes]:
    """Read the packed records of a part of a file, a piece at a time."""
    step = _PIECE_RECORDS * RECORD_BYTES
    stop = min(start + length, file.size_bytes)
    for begin in range(start, stop, step):
        yield from split_records(file.read(begin, min(step, stop - begin)))
