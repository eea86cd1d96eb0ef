"""Cutting a plan into chunks: the unit that is leased, checkpointed and committed.

A chunk should take one engine one to two minutes: long enough that leases and commits cost nothing, short enough that
a lost one costs little. There should be several for each worker, so that all work until the end, and the last ones
should be small, so that they end together. Until a model's speed is learnt a hundred lines stand for a minute or two.

The cost of a line is taken to be half the same for all (the answer) and half in proportion to its bytes (the prompt).
"""

import math
from dataclasses import dataclass
from typing import Final

from slackwater.domain.limits import MIB
from slackwater.domain.sortkeys import shared_levels


@dataclass(frozen=True, kw_only=True, slots=True)
class CutRules:
    """The bounds of a chunk."""

    target_seconds: float = 90.0
    """Engine-seconds of one worker."""
    max_requests: int = 1_000
    max_bytes: int = 32 * MIB
    """Only a single line may be longer: a worker holds a chunk in memory."""
    min_requests: int = 16
    """Wins over time and share, not over bytes. The end of a file, of a model's lines or of the probe may be less."""
    unlearnt_requests: int = 100
    """In place of the time, until the model's speed is known."""
    chunks_per_worker: int = 4
    least_chunks: int = 10
    """Into how many a batch is cut at the least, however few workers there are."""
    tail_share: float = 0.05
    """The end of a batch, as a share of its lines, that is cut small."""
    tail_requests: int = 100
    assumed_line_seconds: float = 0.9
    """What a line is taken to cost until the model's speed is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The lines to be cut, as far as it matters here. All are for one model."""

    n_lines: int
    n_bytes: int
    seconds_per_line: float | None
    """Engine-seconds of one worker for a line; None until it is learnt."""
    live_workers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """One chunk: a run of bytes of the source object."""

    seq: int
    byte_start: int
    byte_length: int
    n_requests: int
    cost_seconds: float


_SOFT_SHARE: Final = 0.75
"""From so much of a full chunk on, the end of a group of like prompts is a place to cut."""


class Cutter:
    """Cuts lines that come in plan order, each chunk as it fills."""

    def __init__(self, rules: CutRules, workload: Workload, *, first_seq: int = 0) -> None:
        self._rules = rules
        self._first_seq = first_seq
        self._line_seconds = workload.seconds_per_line or rules.assumed_line_seconds
        self._mean_bytes = max(1.0, workload.n_bytes / max(1, workload.n_lines))
        self._target_seconds = rules.target_seconds if workload.seconds_per_line else math.inf
        self._left_before_tail = math.ceil(workload.n_lines * (1 - rules.tail_share))
        self._full = full_chunk(rules, workload)
        self._last = self._before_last = b""
        self._start = self._stop = self._n = 0
        self._find_room()
        self.cuts: list[Cut] = []
        """The finished chunks. The one being filled is not among them before :meth:`split`."""

    def add(self, start: int, length: int, key: bytes) -> int:
        """Take the next line and return the number of the chunk it is in.

        ``length`` includes the line feed. ``key`` is the line's sort key, packed: where it tells that a group of like
        prompts ends is where to cut. What lies between two lines of a chunk belongs to the chunk.
        """
        stop = start + length
        if self._n:
            # Most lines find a chunk with room for them; only near its end it is looked at closely.
            full = self._n >= self._room_requests or stop - self._start > self._room_bytes
            if full and self._is_full(stop - self._start, key):
                self.split()
                self._start = start
        else:
            self._start = start
        self._before_last, self._last = self._last, key
        self._stop = stop
        self._n += 1
        return self._first_seq + len(self.cuts)

    def split(self) -> None:
        """End the chunk being filled, if there is one; the next line begins another."""
        if not self._n:
            return
        length = self._stop - self._start
        cost_seconds = self._cost(self._n, length)
        seq = self._first_seq + len(self.cuts)
        self.cuts.append(
            Cut(seq=seq, byte_start=self._start, byte_length=length, n_requests=self._n, cost_seconds=cost_seconds)
        )
        self._left_before_tail -= self._n
        self._n = 0
        self._find_room()

    def _find_room(self) -> None:
        """Say how many requests and bytes the next chunk can take before anything can fill it."""
        rules = self._rules
        if self._left_before_tail <= 0:
            self._full = min(self._full, rules.tail_requests)
        self._room_requests = max(rules.min_requests, math.floor(self._full * _SOFT_SHARE))
        affordable = self._target_seconds * _SOFT_SHARE * 2 / self._line_seconds - self._room_requests
        self._room_bytes = min(rules.max_bytes, affordable * self._mean_bytes)

    def _is_full(self, length: int, key: bytes) -> bool:
        """Tell whether a chunk of ``length`` bytes with the next line would be too much."""
        if length > self._rules.max_bytes:
            return True
        if self._n < self._rules.min_requests:
            return False
        group_ends = shared_levels(self._last, key) < shared_levels(self._before_last, self._last)
        share = _SOFT_SHARE if group_ends else 1.0
        return self._n >= self._full * share or self._cost(self._n + 1, length) > self._target_seconds * share

    def _cost(self, n_requests: int, n_bytes: int) -> float:
        return self._line_seconds * (n_requests + n_bytes / self._mean_bytes) / 2


def full_chunk(rules: CutRules, workload: Workload) -> int:
    """Return how many requests a full chunk has where bytes do not limit it.

    A remainder is spread over all chunks instead of being left to a tiny last one.
    """
    least_chunks = max(rules.least_chunks, rules.chunks_per_worker * workload.live_workers)
    share = math.ceil(workload.n_lines / least_chunks)
    if workload.seconds_per_line:
        timely = math.floor(rules.target_seconds / workload.seconds_per_line)
    else:
        timely = rules.unlearnt_requests
    most = max(rules.min_requests, min(rules.max_requests, share, timely))
    return math.ceil(workload.n_lines / math.ceil(workload.n_lines / most)) if workload.n_lines else most


def is_one_chunk(rules: CutRules, workload: Workload) -> bool:
    """Tell whether all lines are one chunk in any order."""
    return workload.n_lines <= rules.min_requests and workload.n_bytes + workload.n_lines <= rules.max_bytes
