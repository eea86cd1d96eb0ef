"""The lines of a planned chunk, as the worker and the assembler read them: planning has checked every one before."""

from collections.abc import Iterator
from typing import Final

import msgspec

_BOM: Final = b"\xef\xbb\xbf"


class RequestLine(msgspec.Struct, frozen=True, gc=False):
    """What is needed of a request line to run it: both as they stand in the input."""

    custom_id: msgspec.Raw
    """A JSON string, quotes included."""
    body: msgspec.Raw
    """A JSON object."""


class _CustomId(msgspec.Struct, frozen=True, gc=False):
    """What is needed of a request line that will not run."""

    custom_id: msgspec.Raw


_decode_line: Final = msgspec.json.Decoder(RequestLine).decode
_decode_custom_id: Final = msgspec.json.Decoder(_CustomId).decode


def request_lines(source: bytes, *, at_start: bool) -> list[RequestLine]:
    """Read a chunk's bytes; ``at_start`` says that they begin their object, where a byte order mark may stand."""
    return [_decode_line(line) for line in _split(source, at_start=at_start)]


def custom_ids(source: bytes, *, at_start: bool) -> list[bytes]:
    """Read only the custom ids of a chunk, each a JSON string with its quotes."""
    return [bytes(_decode_custom_id(line).custom_id) for line in _split(source, at_start=at_start)]


def _split(source: bytes, *, at_start: bool) -> Iterator[bytes]:
    """Split on line feeds only; blank lines are none."""
    if at_start and source.startswith(_BOM):
        source = source[len(_BOM) :]
    return (line for line in source.split(b"\n") if line and not line.isspace())
