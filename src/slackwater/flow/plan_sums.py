"""Checksums of a plan: of each chunk's lines and of its entries in the index, taken while both are written.

A worker reads a chunk by its bytes, and whoever needs only the custom ids of a chunk reads its entries: so each has a
checksum of its own, and damage to a large object is the loss of what it hit and no more.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from slackwater.db.queue.planning import PlannedChunk
from slackwater.db.queue.results import StoredRange
from slackwater.flow.plan_scratch import PIECE_BYTES, ScratchFile


class Piece(NamedTuple):
    """The next bytes of the plan object (none where the plan is in place) and of its index."""

    lines: bytes
    entries: bytes


class _Sums:
    """The sums of one chunk so far."""

    __slots__ = ("entries_crc32", "entries_start", "entries_stop", "lines_crc32")

    def __init__(self, entries_start: int) -> None:
        self.entries_start = self.entries_stop = entries_start
        self.entries_crc32 = self.lines_crc32 = 0


class SummedPieces:
    """Gathers runs of one chunk's lines each into pieces, and sums them up by chunk."""

    def __init__(self, *, moved: bool) -> None:
        """``moved``: the lines are written anew, so that their sums can be taken on the way."""
        self._moved = moved
        self._sums: dict[int, _Sums] = {}
        self._lines: list[bytes] = []
        self._entries: list[bytes] = []
        self._gathered_bytes = 0
        self._index_bytes = 0

    def run(self, seq: int, lines: bytes, entries: bytes) -> Iterator[Piece]:
        """Take the next lines of a chunk, line feeds included, and their entries; yields a piece when one is full.

        The entries of one chunk must follow one another.
        """
        sums = self._sums.get(seq)
        if sums is None:
            sums = self._sums[seq] = _Sums(self._index_bytes)
        sums.lines_crc32 = zlib.crc32(lines, sums.lines_crc32)
        sums.entries_crc32 = zlib.crc32(entries, sums.entries_crc32)
        self._index_bytes += len(entries)
        sums.entries_stop = self._index_bytes
        self._lines.append(lines)
        self._entries.append(entries)
        self._gathered_bytes += len(lines) + len(entries)
        if self._gathered_bytes >= PIECE_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Piece]:
        """Yield what is gathered, if anything is."""
        if self._entries:
            piece = Piece(b"".join(self._lines), b"".join(self._entries))
            self._lines, self._entries, self._gathered_bytes = [], [], 0
            yield piece

    def entries_of(self, seq: int, index_key: str) -> StoredRange:
        """Say where a chunk's entries stand in the index, and what they are."""
        sums = self._sums[seq]
        size_bytes = sums.entries_stop - sums.entries_start
        return StoredRange(index_key, sums.entries_start, size_bytes, sums.entries_crc32)

    def seal(self, chunks: Sequence[PlannedChunk], index_key: str, source: ScratchFile) -> list[PlannedChunk]:
        """Give every chunk its checksums. Reads the input once more where its lines stay as they are."""
        return [
            replace(
                chunk,
                crc32=self._sums[chunk.seq].lines_crc32 if self._moved else _crc32_in(source, chunk),
                index=self.entries_of(chunk.seq, index_key),
            )
            for chunk in chunks
        ]


def _crc32_in(source: ScratchFile, chunk: PlannedChunk) -> int:
    """Sum up a chunk's bytes, blank lines between its lines included."""
    crc32 = 0
    stop = chunk.byte_start + chunk.byte_length
    for start in range(chunk.byte_start, stop, PIECE_BYTES):
        crc32 = zlib.crc32(source.read(start, min(PIECE_BYTES, stop - start)), crc32)
    return crc32
