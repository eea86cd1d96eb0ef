"""Scratch files of planning: nameless, so that they are gone with the process, however it ends.

Everything here blocks on the disk and belongs in a thread.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from slackwater.domain.errors import Unavailable

T = TypeVar("T")

PIECE_BYTES: Final = 1 << 20


class ScratchFile:
    """A file to append to and to read anywhere. Raises Unavailable when the disk is full or broken."""

    __slots__ = ("_descriptor", "_file", "size_bytes")

    def __init__(self, folder: Path) -> None:
        with _disk():
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 – closed by close()
        self._descriptor = self._file.fileno()
        self.size_bytes = 0

    def append(self, data: bytes) -> None:
        """Write at the end."""
        rest = memoryview(data)
        with _disk():
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        self.size_bytes += len(data)

    def read(self, start: int, length: int) -> bytes:
        """Read a run of bytes; fewer only at the end."""
        # The hot call of the second pass: no context manager around it. Reading back what was just written does not
        # fail on a disk that is merely full.
        return os.pread(self._descriptor, length, start)

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Read the whole file from its start."""
        for start in range(0, self.size_bytes, piece_bytes):
            yield self.read(start, piece_bytes)

    def close(self) -> None:
        """Give the space back. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def in_thread(call: Callable[[], T]) -> T:
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
