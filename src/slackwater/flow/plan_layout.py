"""Where every line of a plan goes: in which order, into which chunk, at which bytes.

Two layouts. *Rewritten*: the lines are copied into a plan object in sorted order, each with one line feed behind it.
*In place*: another order would gain nothing, so the chunks point into the input as it is. Either way a sidecar index
gets one JSON array for each line, ``[physical line, custom_id, offset, length, chunk]``; offset and length are those
in the object that the chunks point into. Refused lines come last, with the chunk that holds their answers and their
place in the input.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, islice
from typing import Final, NamedTuple

from slackwater.db.queue.planning import PlannedChunk
from slackwater.domain.cutting import CutRules, Cutter, Workload
from slackwater.domain.limits import InputLimits
from slackwater.domain.lines import custom_id_of
from slackwater.domain.records import MODEL_BYTES, read_record, unpack_record
from slackwater.domain.results import json_string
from slackwater.flow.plan_probe import PROBE_LINES
from slackwater.flow.plan_scratch import PIECE_BYTES, ScratchFile
from slackwater.flow.plan_sums import Piece, SummedPieces

_PIECE_LINES: Final = 4_000
_NO_CUSTOM_ID: Final = b"null"


class Segment(NamedTuple):
    """Packed records in plan order, all for one cutter."""

    records: Iterable[bytes]
    cutter: Cutter


class ChunkBook:
    """All chunks of a plan: one cutter for each model, and one for the probe."""

    def __init__(self, rules: CutRules, models: list[str], workloads: dict[int, Workload]) -> None:
        """``models`` are served ids; ``workloads`` are those of the models that have lines to run, by number."""
        self._rules = rules
        self._models = models
        self._workloads = workloads
        self._probe: list[tuple[int, Cutter]] = []
        self._cutters: list[tuple[int, Cutter]] = []

    @property
    def models(self) -> list[int]:
        """Numbers of the models that have lines to run."""
        return list(self._workloads)

    def probe(self) -> Cutter:
        """Set the first chunk apart, whatever comes into it when. For plans of one model, before any other chunk."""
        model = self.models[0]
        # Small by choice: neither time nor share may end it.
        cutter = Cutter(replace(self._rules, min_requests=PROBE_LINES), self._workloads[model])
        self._probe = [(model, cutter)]
        return cutter

    def begin(self, model: int) -> Cutter:
        """Begin the chunks of a model; those of the model before end here."""
        next_seq = len(self._probe)
        for _, cutter in self._cutters:
            cutter.split()
            next_seq += len(cutter.cuts)
        cutter = Cutter(self._rules, self._workloads[model], first_seq=next_seq)
        self._cutters.append((model, cutter))
        return cutter

    def chunks(self) -> list[PlannedChunk]:
        """End the plan and return its chunks by number."""
        planned: list[PlannedChunk] = []
        for model, cutter in self._probe + self._cutters:
            cutter.split()
            planned += (
                PlannedChunk(
                    seq=cut.seq,
                    model=self._models[model],
                    byte_start=cut.byte_start,
                    byte_length=cut.byte_length,
                    n_requests=cut.n_requests,
                    cost_seconds=cut.cost_seconds,
                )
                for cut in cutter.cuts
            )
        return planned


def segments_by_model(records: Iterable[bytes], book: ChunkBook) -> Iterator[Segment]:
    """Give each model's lines, which stand together, a cutter of its own."""
    for model, group in groupby(records, key=lambda packed: packed[:MODEL_BYTES]):
        yield Segment(group, book.begin(int.from_bytes(model, "big")))


def segments_with_probe(records: Iterable[bytes], probe: list[bytes], book: ChunkBook) -> Iterator[Segment]:
    """Put lines chosen from anywhere in front, as the first chunk."""
    chosen = frozenset(probe)
    yield Segment(probe, book.probe())
    rest = (packed for packed in records if packed not in chosen)
    yield from segments_by_model(rest, book)


def segments_around_probe(records: Iterable[bytes], probe: range, book: ChunkBook) -> Iterator[Segment]:
    """Make a run of lines the first chunk by its number alone: it stays where it is, and no chunk reaches over it."""
    following = iter(records)
    first = book.probe()
    rest = book.begin(book.models[0])
    yield Segment(islice(following, probe.start), rest)
    yield Segment(islice(following, len(probe)), first)
    rest.split()
    yield Segment(following, rest)


def rewritten(segments: Iterable[Segment], source: ScratchFile, pieces: SummedPieces) -> Iterator[Piece]:
    """Copy the lines of the segments one after another."""
    lines: list[bytes] = []
    entries: list[bytes] = []
    position, full_at, chunk = 0, PIECE_BYTES, -1
    for records, cutter in segments:
        read, add = source.read, cutter.add
        for packed in records:
            key, _, start, length, number, id_start, id_length = unpack_record(packed)
            line = read(start, length)
            seq = add(position, length + 1, key)
            if (seq != chunk or position >= full_at) and lines:
                lines.append(b"")
                yield from pieces.run(chunk, b"\n".join(lines), b"".join(entries))
                lines, entries, full_at = [], [], position + PIECE_BYTES
            chunk = seq
            custom_id = line[id_start : id_start + id_length] or _custom_id(line)
            entries.append(b"[%d,%b,%d,%d,%d]\n" % (number, custom_id, position, length, seq))
            lines.append(line)
            position += length + 1
    if lines:
        lines.append(b"")
        yield from pieces.run(chunk, b"\n".join(lines), b"".join(entries))
    yield from pieces.rest()


def in_place(segments: Iterable[Segment], source: ScratchFile, pieces: SummedPieces) -> Iterator[Piece]:
    """Leave the lines where they are."""
    entries: list[bytes] = []
    size = source.size_bytes
    piece, base, chunk = b"", 0, -1
    for records, cutter in segments:
        add = cutter.add
        for packed in records:
            key, _, start, length, number, id_start, id_length = unpack_record(packed)
            # The file's last line may have no line feed.
            seq = add(start, length + 1 if start + length < size else length, key)
            if (seq != chunk or len(entries) >= _PIECE_LINES) and entries:
                yield from pieces.run(chunk, b"", b"".join(entries))
                entries = []
            chunk = seq
            at = start - base
            if at < 0 or at + length > len(piece):
                piece, base, at = source.read(start, max(PIECE_BYTES, length)), start, 0
            at += id_start
            custom_id = piece[at : at + id_length] or _custom_id(piece[at : at + length])
            entries.append(b"[%d,%b,%d,%d,%d]\n" % (number, custom_id, start, length, seq))
    if entries:
        yield from pieces.run(chunk, b"", b"".join(entries))
    yield from pieces.rest()


def refused_entries(
    records: Iterable[bytes], source: ScratchFile, pieces: SummedPieces, *, seq: int, limits: InputLimits
) -> Iterator[Piece]:
    """Write the index of lines that are answered already, which stand in chunk ``seq``."""
    longest_line, longest_id = limits.max_line_bytes, limits.max_custom_id_chars
    entries: list[bytes] = []
    for packed in records:
        record = read_record(packed)
        # A line that was too long to be checked is too long to be read.
        line = source.read(record.start, record.length) if record.length <= longest_line else b""
        custom_id = _custom_id(line, longest_id)
        entries.append(b"[%d,%b,%d,%d,%d]\n" % (record.number, custom_id, record.start, record.length, seq))
        if len(entries) >= _PIECE_LINES:
            yield from pieces.run(seq, b"", b"".join(entries))
            entries = []
    if entries:
        yield from pieces.run(seq, b"", b"".join(entries))
    yield from pieces.rest()


def _custom_id(line: bytes, longest: int | None = None) -> bytes:
    custom_id = custom_id_of(line)
    if not custom_id or (longest is not None and len(custom_id) > longest):
        return _NO_CUSTOM_ID
    return json_string(custom_id)
