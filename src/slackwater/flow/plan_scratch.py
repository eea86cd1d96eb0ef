"""Scratch files of planning: nameless, so that they are gone with the process, however it ends.

A small one stays in memory: making a file costs more than planning ten lines. Large ones block on the disk, and what
works on them belongs in a thread (:meth:`PlanScratch.off_loop_if_long`).
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, TypeVar

from slackwater.domain.errors import Unavailable
from slackwater.domain.scan import Scanned

T = TypeVar("T")

PIECE_BYTES: Final = 1 << 20
SMALL_BYTES: Final = 1 << 16
"""Up to here a scratch file stays in memory."""
SMALL_LINES: Final = 200
"""Work on no more than this, in :data:`SMALL_BYTES`, takes a millisecond or two: no thread is worth its while. Bytes
alone would not tell: as many bytes of two-byte lines take half a second."""


class ScratchFile:
    """A file to append to and to read anywhere. Raises Unavailable when the disk is full or broken."""

    __slots__ = ("_file", "_folder", "_memory", "size_bytes")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        """None while all of it is in memory."""
        self.size_bytes = 0

    def append(self, data: bytes) -> None:
        """Write at the end."""
        self.size_bytes += len(data)
        if self._file is None:
            self._memory += data
            if self.size_bytes <= SMALL_BYTES:
                return
            with _disk():
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  closed by close()
            data, self._memory = bytes(self._memory), bytearray()
        rest, descriptor = memoryview(data), self._file.fileno()
        with _disk():
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    def read(self, start: int, length: int) -> bytes:
        """Read a run of bytes; fewer only at the end."""
        # The hot call of the second pass: no context manager around it. Reading back what was just written does not
        # fail on a disk that is merely full.
        if self._file is not None:
            return os.pread(self._file.fileno(), length, start)
        return bytes(self._memory[start : start + length])

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Read the whole file from its start."""
        for start in range(0, self.size_bytes, piece_bytes):
            yield self.read(start, piece_bytes)

    def close(self) -> None:
        """Give the space back. Idempotent."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PlanScratch:
    """The scratch files of one plan. Closing it gives their space back."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must exist and have room for a copy of the input."""
        self._files = ExitStack()
        self._folder = folder
        self._lines = 0
        """Of an input that is small in bytes."""
        self.input = self.file()
        """The input, byte for byte."""
        self.records = self.file()
        """Records of the lines to run, in order of the file."""
        self.refused = self.file()
        """Records of the lines that are answered already."""
        self.error_lines = self.file()
        """Their answers."""

    def file(self) -> ScratchFile:
        """Make one more file."""
        return self._files.enter_context(ScratchFile(self._folder))

    def take(self, block: bytes, scanned: Scanned) -> None:
        """Keep one block of the input and what became of its lines."""
        self.input.append(block)
        if self.input.size_bytes <= SMALL_BYTES:
            self._lines += block.count(b"\n")
        self.records.append(b"".join(scanned.records))
        self.refused.append(b"".join(scanned.refused_records))
        self.error_lines.append(b"".join(scanned.error_lines))

    async def off_loop_if_long(self, call: Callable[[], T], *, adding: bytes = b"") -> T:
        """Run a call that works on these files, and adds this to the input: in a thread, where it may take long."""
        if self.input.size_bytes + len(adding) > SMALL_BYTES or self._lines + adding.count(b"\n") > SMALL_LINES:
            return await _in_thread(call)
        return call()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call that blocks in a thread, and outlast it: also when cancelled, so that no file is closed under it."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable("planning cannot write its scratch files; is the disk full?") from error
