"""Splits a multipart/form-data body into its parts, in pieces as they arrive, with the ``multipart`` library.

Ours around the library's: the boundary's grammar, text before the first boundary (the library's reading of it depends
on how the body was cut into chunks), and one strict reading of a part's headers (the library's own takes quadratic time
on hostile ones). However a body is cut, the same parts come out, in time linear in its length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import multipart  # type: ignore[import-untyped] # it has annotations but no py.typed

from slackwater.api.content_disposition import read_disposition
from slackwater.domain.errors import BadRequest

_BOUNDARY: Final = re.compile(r';[ \t]*boundary=(?:"([^"\r\n]*)"|([^ \t;"]*))', re.IGNORECASE)
_BOUNDARY_GRAMMAR: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")  # RFC 2046, 5.1.1
_IDENTITY_ENCODINGS: Final = frozenset({"binary", "8bit", "7bit"})
_MAX_HEADERS: Final = 8


@dataclass(kw_only=True, slots=True)
class FormPart:
    """One part whose headers have been read. The two last fields are the library's book-keeping."""

    name: str
    filename: str | None
    bytes_received: int = 0
    complete: bool = False


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a request's Content-Type names. Raises BadRequest."""
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        raise BadRequest("The body must be multipart/form-data, with the file in the part 'file'.", param="file")
    found = _BOUNDARY.search(content_type)
    boundary = (found.group(1) or found.group(2) or "") if found else ""
    if _BOUNDARY_GRAMMAR.fullmatch(boundary) is None:
        raise BadRequest("The Content-Type names no valid boundary.", param="file")
    return boundary.encode()


class FormParser:
    """Turns chunks into events: a FormPart at the start of each part, then its bytes, then None at its end."""

    def __init__(self, boundary: bytes, *, max_parts: int, max_header_bytes: int) -> None:
        self._parser = _PartParser(
            boundary, max_segment_count=max_parts, max_header_count=_MAX_HEADERS, max_header_size=max_header_bytes
        )
        self._opening = b"--" + boundary
        self._before = b""
        self._at_start = True
        self._begun = False
        self._part: FormPart | None = None
        self._held_back = False

    def feed(self, chunk: bytes) -> Iterator[FormPart | bytes | None]:
        """Yield what the next chunk completes. Raises BadRequest."""
        if not self._begun:
            chunk = self._skip_preamble(chunk)
        if not chunk:
            return
        if self._part is not None and not self._held_back and b"\r" not in chunk:
            # No boundary begins or goes on here. Most chunks of a JSON Lines file are like this, and one memchr tells:
            # measured, a tenth of an upload's whole cost less than the library's search for the boundary.
            self._part.bytes_received += len(chunk)
            yield chunk
            return
        try:
            for event in self._parser.parse(chunk):
                if not isinstance(event, bytes):
                    self._part = event
                yield event
        except multipart.MultipartError as error:
            raise _malformed(str(error.args[0])) from error
        # The library keeps back what may be the beginning of a boundary: CR LF, the boundary, a byte of what follows.
        longest = len(self._opening) + 3
        self._held_back = b"\r" in chunk[-longest:] or (self._held_back and len(chunk) < longest)

    def end(self) -> None:
        """Say that no more will come. Raises BadRequest when the last boundary has not been seen."""
        try:
            self._parser.close()
        except multipart.MultipartError as error:
            raise _malformed("it ends before its last boundary") from error

    def _skip_preamble(self, chunk: bytes) -> bytes:
        seen = self._before + chunk
        if self._at_start and (seen.startswith(self._opening) or self._opening.startswith(seen)):
            self._begun = len(seen) >= len(self._opening)
            self._before = seen
            return seen if self._begun else b""
        self._at_start = False
        found = seen.find(b"\r\n" + self._opening)
        if found < 0:
            # Only what may be the beginning of a boundary is kept.
            self._before = seen[-len(self._opening) - 1 :]
            return b""
        self._begun = True
        return seen[found + 2 :]


class _PartParser(multipart.PushMultipartParser):  # type: ignore[misc] # see the import
    """The library's parser, with our reading of a part's headers."""

    def _create_segment(self, headerlist: list[tuple[str, str]]) -> FormPart:
        headers = dict(headerlist)
        if len(headers) < len(headerlist):
            raise _malformed("a part has the same header twice")
        if any("\n" in value or "\r" in value for value in headers.values()):
            raise _malformed("a part's header contains a line break")
        # Undone by nobody any more (RFC 7578, 4.7), so the bytes would be stored as something they are not.
        if headers.get("Content-Transfer-Encoding", "binary").lower() not in _IDENTITY_ENCODINGS:
            raise _malformed("a part is encoded for transfer")
        disposition = read_disposition(headers.get("Content-Disposition", ""))
        return FormPart(name=disposition.name, filename=disposition.filename)


def _malformed(reason: str) -> BadRequest:
    return BadRequest(f"The form is malformed: {reason}.", param="file")
