"""The one way to cut a file into lines: at line feeds, and at nothing else.

Not at a carriage return, not at U+2028, U+2029 or U+0085: those may stand in a string. White space around a line (a
carriage return before the line feed, say) is not part of it, a line of white space alone is none, and one byte order
mark at the very start of a file is dropped. Physical line numbers count every line feed.
"""

from io import BytesIO
from typing import Final

import msgspec

BOM: Final = b"\xef\xbb\xbf"
WHITE_SPACE: Final = b" \t\r\n"
"""What JSON allows between tokens; the line feed stands only at a line's end."""

_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_NUL: Final = 0
_FIRST_BYTES: Final = 4


class _Identity(msgspec.Struct, gc=False):
    custom_id: str


_read_identity: Final = msgspec.json.Decoder(_Identity).decode


class LineSplitter:
    """Cuts a file that comes in blocks of any size. A line that has no end yet is kept, but not at any length."""

    __slots__ = (
        "_blank",
        "_longest",
        "_mark_may_come",
        "_overlong",
        "_rest",
        "dropped_blank",
        "dropped_bytes",
        "mark_bytes",
    )

    def __init__(self, longest: int) -> None:
        """``longest`` is how many bytes of a line may be held."""
        self._longest = longest
        self._rest = b""
        self._overlong = 0
        self._blank = True
        self._mark_may_come = True
        self.mark_bytes = 0
        """Length of the byte order mark that was dropped, 0 if the file has none."""
        self.dropped_bytes = 0
        """Length, without its line feed, of an overlong line that stood before the lines last returned; else 0."""
        self.dropped_blank = False
        """Whether that line was nothing but white space."""

    def feed(self, block: bytes) -> list[bytes]:
        """Return the lines that end in this block, with their line feeds."""
        data = self._rest + block if self._rest else block
        if self._mark_may_come:
            if len(data) < len(BOM) and BOM.startswith(data):
                self._rest = data
                return []
            data = self._without_mark(data)
        # split() looks at one byte after another, and that would be a fifth of all that planning does.
        lines = BytesIO(data).readlines()
        self._rest = lines.pop() if not data.endswith(b"\n") and lines else b""
        self.dropped_bytes = 0
        if lines and self._overlong:
            self._drop(lines.pop(0)[:-1])
        if self._overlong or len(self._rest) > self._longest:
            self._overlong += len(self._rest)
            self._blank = self._blank and not self._rest.strip(WHITE_SPACE)
            self._rest = b""
        return lines

    def finish(self) -> list[bytes]:
        """Return the line that has no line feed; an empty list when the file ends with one."""
        lines = [self._rest] if self._rest else []
        self._rest = b""
        self.dropped_bytes = 0
        if self._overlong:
            self._drop(b"")
        return lines

    def _without_mark(self, data: bytes) -> bytes:
        self._mark_may_come = False
        if data.startswith(BOM):
            self.mark_bytes = len(BOM)
        return data[self.mark_bytes :]

    def _drop(self, end: bytes) -> None:
        self.dropped_bytes = self._overlong + len(end)
        self.dropped_blank = self._blank and not end.strip(WHITE_SPACE)
        self._overlong = 0
        self._blank = True


def is_utf16(start: bytes) -> bool:
    """Tell from its first bytes whether a file is UTF-16, UTF-32 or gzip: JSON holds no NUL, they do."""
    return start.startswith(_UTF16_MARKS) or _NUL in start[:_FIRST_BYTES]


def custom_id_of(line: bytes) -> str | None:
    """Read a line's custom_id, whatever else is wrong with it; None where it has none that could be one."""
    try:
        return _read_identity(line).custom_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
