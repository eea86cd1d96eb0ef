"""The probe of a large batch: a small first chunk from all over it, so that its speed and lengths are known early."""

from collections.abc import Callable
from typing import Final

from slackwater.domain.records import RECORD_BYTES, read_record
from slackwater.flow.plan_scratch import ScratchFile

LEAST_LINES: Final = 5_000
"""Batches of more lines than this have a probe."""
PROBE_LINES: Final = 64


def random_lines(records: ScratchFile, choose: Callable[[int], int], *, max_bytes: int) -> list[bytes]:
    """Choose different lines at random, in order of the file: ``choose(n)`` gives a number below n."""
    n_records = records.size_bytes // RECORD_BYTES
    chosen: set[int] = set()
    # Floyd's sampling: each set of lines is as likely as any other, and it ends whatever chance says.
    for last in range(max(0, n_records - PROBE_LINES), n_records):
        place = choose(last + 1)
        chosen.add(last if place in chosen else place)
    probe: list[bytes] = []
    room = max_bytes
    for place in sorted(chosen):
        packed = _packed(records, place)
        room -= read_record(packed).length + 1
        if room >= 0:
            probe.append(packed)
    return probe


def random_run(records: ScratchFile, choose: Callable[[int], int], *, max_bytes: int) -> range:
    """Choose a run of lines that begins at random, as places among the records: where the input is not rewritten."""
    n_records = records.size_bytes // RECORD_BYTES
    begin = choose(n_records - min(PROBE_LINES, n_records) + 1)
    first = read_record(_packed(records, begin))
    stop = begin
    for place in range(begin, min(begin + PROBE_LINES, n_records)):
        last = read_record(_packed(records, place))
        if last.start + last.length + 1 - first.start > max_bytes:
            break
        stop = place + 1
    return range(begin, stop)


def _packed(records: ScratchFile, place: int) -> bytes:
    return records.read(place * RECORD_BYTES, RECORD_BYTES)
