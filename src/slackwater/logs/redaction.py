"""What may leave in a log line: plain values, of bounded size, without secrets.

Secrets are found in three ways, because each alone misses some: by value (those the process was started with), by the
name of the field that holds them, and by their form in running text (our keys, bearer tokens, passwords in URLs and
connection strings, signatures of presigned URLs). Masking too much is fine, too little is not.
"""

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from structlog.typing import EventDict, WrappedLogger

MASK: Final = "[redacted]"

_MAX_TEXT: Final = 4096
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 6
_MAX_INT_BITS: Final = 128
_MIN_SECRET: Final = 6
"""Masking every occurrence of a shorter value would garble the logs; its forms and names are still masked."""

_NAMES: Final = (
    r"(?:(?:[a-z0-9]+[-_]){0,4}"
    r"(?:authorization|credential|signature|password|passwd|pwd|secret|cookie"
    r"|api[-_]?key|access[-_]?key(?:[-_]?id)?|(?:session|security|access|refresh)[-_]token)"
    r"|awsaccesskeyid)"
)
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_QUOTED: Final = r"""\\*"[^"]*"|\\*'[^']*'"""
_BARE: Final = r"""(?:(?:bearer|basic|token|aws4-hmac-sha256)\s+)?[^\s"'&,;)}\]]+"""
_FORMS: Final = (
    (re.compile(r"(?<![A-Za-z0-9_])(sk-(?:[a-z]{2,8}-)?)[A-Za-z0-9_-]{8,}"), rf"\1{MASK}"),
    (re.compile(r"(://[^\s/@:]*):\S*@"), rf"\1:{MASK}@"),
    (
        re.compile(rf"""(?<![A-Za-z0-9])({_NAMES})((?:\\*["'])?\s*[=:]\s*)(?:{_QUOTED}|{_BARE})""", re.IGNORECASE),
        rf"\1\2{MASK}",
    ),
    (re.compile(r"\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"\b(basic\s+)(?=\S*[\d=])[A-Za-z0-9+/=]{8,}", re.IGNORECASE), rf"\1{MASK}"),
)
_MAY_HOLD_ONE: Final = re.compile(r"[:=]|sk-|bearer|basic", re.IGNORECASE)
"""In every text that some form matches; looking for this alone costs a fifth."""


class Redactor:
    """A structlog processor that turns any event into one that may be shown. It never raises for odd values."""

    def __init__(self, secrets: Sequence[str] = (), *, escape: bool = False) -> None:
        """Mask ``secrets`` wherever they occur; ``escape`` shows control characters as text, for a terminal."""
        self._secrets: Final = sorted({secret for secret in secrets if len(secret) >= _MIN_SECRET}, key=len)[::-1]
        self._escape: Final = escape

    def __call__(self, _logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
        """Return a clean copy of the event."""
        return {self.text(key): self._field(key, value, 0) for key, value in event.items()}

    def text(self, text: str) -> str:
        """Return the text without secrets, cut to a few thousand characters."""
        clean = cut_at_blank(text, 2 * _MAX_TEXT)
        for secret in self._secrets:
            clean = clean.replace(secret, MASK)
        if _MAY_HOLD_ONE.search(clean) is not None:
            for form, mask in _FORMS:
                clean = form.sub(mask, clean)
        if len(clean) > _MAX_TEXT:
            clean = f"{clean[:_MAX_TEXT]}… ({len(text)} characters)"
        return _printable(clean) if self._escape else clean

    def _field(self, name: str, value: object, depth: int) -> object:
        if value is not None and _names_a_secret(name):
            return MASK
        return self._value(value, depth)

    def _value(self, value: object, depth: int) -> object:
        match value:
            case None | bool():
                return value
            case int():
                return value if value.bit_length() <= _MAX_INT_BITS else f"an integer of {value.bit_length()} bits"
            case float():
                return value if math.isfinite(value) else str(value)
            case str():
                return self.text(value)
            case Mapping() | Sequence() | AbstractSet() if not isinstance(value, bytes | bytearray | memoryview):
                return self._nested(value, depth + 1)
            case _:
                return self.text(str(value))

    def _nested(self, value: Mapping[object, object] | Sequence[object] | AbstractSet[object], depth: int) -> object:
        if depth > _MAX_DEPTH:
            return "…"
        more = len(value) - _MAX_ITEMS
        if isinstance(value, Mapping):
            names = list(value)[:_MAX_ITEMS]
            fields = {self.text(str(name)): self._field(str(name), value[name], depth) for name in names}
            return fields | {"…": f"{more} more"} if more > 0 else fields
        items = [self._value(item, depth) for item in list(value)[:_MAX_ITEMS]]
        return [*items, f"… {more} more"] if more > 0 else items


@lru_cache(maxsize=1024)
def _names_a_secret(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def cut_at_blank(text: str, room: int) -> str:
    """Shorten text that is still to be cleaned. Half a secret might not look like one, so only whole words stay."""
    if len(text) <= room:
        return text
    head = text[:room].rsplit(maxsplit=1)
    return f"{head[0]} …" if len(head) > 1 else "…"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
