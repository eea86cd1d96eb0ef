"""A file's upload as a ``multipart/form-data`` body (RFC 7578), read in pieces: memory stays flat.

The fields come first and the file last, as the official Python SDK sends them, so that a server knows the purpose
before the bytes. The boundary is an argument: the same key gives the same bytes on every attempt.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from slackwater.client.errors import SourceChanged

PIECE_BYTES: Final = 512 * 1024
"""How much of the file is in memory at a time."""


class Readable(Protocol):
    """Anything that gives its next bytes, at most so many; none at its end."""

    def read(self, length: int, /) -> bytes:
        """Read the next bytes."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where an upload's bytes come from."""

    filename: str
    length_bytes: int | None
    """None where it is not known beforehand: the body is sent in chunks without a length."""
    repeatable: bool
    """Whether a second attempt can read it again."""
    open: Callable[[], AbstractContextManager[Readable]]
    """Give the stream at the upload's first byte."""


def source_of_path(path: Path, *, filename: str | None = None) -> Source:
    """Describe a file on disk, opened anew for each attempt. Raises OSError where it cannot be read."""
    with path.open("rb") as stream:
        if stream.seekable():
            return Source(
                filename=filename or path.name,
                length_bytes=os.fstat(stream.fileno()).st_size,
                repeatable=True,
                open=lambda: path.open("rb"),
            )
    # A named pipe gives its bytes once.
    return Source(filename=filename or path.name, length_bytes=None, repeatable=False, open=lambda: path.open("rb"))


def source_of_stream(stream: BinaryIO, *, filename: str) -> Source:
    """Describe an open stream from where it stands; it is not closed. One that cannot seek is read once."""
    if not stream.seekable():
        return Source(filename=filename, length_bytes=None, repeatable=False, open=lambda: nullcontext(stream))
    start = stream.tell()
    end = stream.seek(0, os.SEEK_END)

    def rewound() -> AbstractContextManager[Readable]:
        stream.seek(start)
        return nullcontext(stream)

    return Source(filename=filename, length_bytes=end - start, repeatable=True, open=rewound)


@dataclass(frozen=True, kw_only=True, slots=True)
class MultipartBody:
    """One upload; ``sent``, where given, is told how many bytes of the file have been handed over."""

    fields: tuple[tuple[str, str], ...]
    source: Source
    boundary: str
    sent: Callable[[int], object] | None = None

    @property
    def content_type(self) -> str:
        """The value of the Content-Type header."""
        return f"multipart/form-data; boundary={self.boundary}"

    @property
    def length_bytes(self) -> int | None:
        """The value of the Content-Length header; None where the source's length is not known."""
        if self.source.length_bytes is None:
            return None
        return len(self.head) + self.source.length_bytes + len(self.tail)

    @property
    def head(self) -> bytes:
        """What comes before the file's bytes."""
        parts = [
            f'Content-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{value}' for name, value in self.fields
        ]
        parts.append(
            f'Content-Disposition: form-data; name="file"; filename="{_quoted(self.source.filename)}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        return "\r\n".join(f"--{self.boundary}\r\n{part}" for part in parts).encode()

    @property
    def tail(self) -> bytes:
        """What comes after the file's bytes."""
        return f"\r\n--{self.boundary}--\r\n".encode()

    def pieces(self) -> Iterator[bytes]:
        """Give the whole body, the file's bytes piece by piece. Raises SourceChanged and the source's OSError."""
        yield self.head
        with self.source.open() as stream:
            yield from _file_pieces(stream, self.source.length_bytes, self.sent)
        yield self.tail


def _file_pieces(stream: Readable, length_bytes: int | None, sent: Callable[[int], object] | None) -> Iterator[bytes]:
    taken = 0
    # A file that grows meanwhile is cut at the announced length.
    while piece := stream.read(PIECE_BYTES if length_bytes is None else min(PIECE_BYTES, length_bytes - taken)):
        yield piece
        taken += len(piece)
        if sent is not None:
            sent(taken)
    if length_bytes is not None and taken < length_bytes:
        raise SourceChanged(f"the file had {length_bytes} bytes when the upload began and ended at {taken}")


def _quoted(name: str) -> str:
    """Escape a name inside quotes as browsers do (the URL standard's multipart rule): UTF-8 stays as it is."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
