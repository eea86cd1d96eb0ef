"""Reads the Content-Disposition header of one part of a form.

What clients really send in a file's name: raw UTF-8 in quotes (every SDK); ``%22 %0D %0A`` for the three characters
that cannot stand there (browsers, Node, httpx); backslash before quote and backslash (curl, httpx); ``filename*`` by
RFC 5987 (old requests). One name comes out, or a refusal: a part whose name could be read in two ways is never guessed
at, and whoever checks the name and whoever keeps it see the same text.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from slackwater.domain.errors import BadRequest

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# The second form is for clients that leave a backslash at the end of a name as it is.
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(?=[ \t]*(?:;|$))', re.DOTALL)
_QUOTED_PLAIN: Final = re.compile(r'"([^"]*)"(?=[ \t]*(?:;|$))')
_SPACE: Final = re.compile(r"[ \t]*")
_ESCAPED: Final = re.compile(r'\\(["\\])|%(22|0D|0A)')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Disposition:
    """What the header says about its part."""

    name: str
    filename: str | None
    """None where the part is a plain field; may be empty."""


def read_disposition(header: str) -> Disposition:
    """Read the value of a part's Content-Disposition header. Raises BadRequest."""
    kind = _TOKEN.match(header)
    if kind is None or kind.group().lower() != "form-data":
        raise _malformed("every part needs 'Content-Disposition: form-data'")
    parameters = _parameters(header, kind.end())
    if "name" not in parameters:
        raise _malformed("a part has no name")
    name, filename = parameters["name"], parameters.get("filename")
    if filename is None and "filename*" in parameters:
        # RFC 7578 forbids this form, so a plain filename wins over it; alone it is old clients' only way.
        filename = _extended(parameters["filename*"])
    for text in (name, filename or ""):
        if _CONTROL.search(text):
            raise BadRequest("The name of a part or of its file contains a control character.", param="file")
    return Disposition(name=name, filename=filename)


def _parameters(header: str, position: int) -> dict[str, str]:
    found: dict[str, str] = {}
    while (position := _skipped(header, position)) < len(header):
        if header[position] != ";":
            raise _malformed("its Content-Disposition cannot be read")
        key = _TOKEN.match(header, _skipped(header, position + 1))
        if key is None:  # a semicolon at the end
            position += 1
            continue
        name, at = key.group().lower(), _skipped(header, key.end())
        if header[at : at + 1] != "=" or name in found or ("*" in name and name != "filename*"):
            raise _malformed(f"its Content-Disposition cannot be read at {name[:20]!r}")
        found[name], position = _value(header, _skipped(header, at + 1))
    return found


def _value(header: str, position: int) -> tuple[str, int]:
    if quoted := _QUOTED.match(header, position) or _QUOTED_PLAIN.match(header, position):
        return _ESCAPED.sub(_unescaped, quoted.group(1)), quoted.end()
    if token := _TOKEN.match(header, position):
        return token.group(), token.end()
    raise _malformed("its Content-Disposition cannot be read")


def _unescaped(escape: re.Match[str]) -> str:
    return escape.group(1) or chr(int(escape.group(2), 16))


def _extended(value: str) -> str:
    charset, _, rest = value.partition("'")
    _, quote, encoded = rest.partition("'")
    if charset.lower() != "utf-8" or not quote:
        raise _malformed("its filename* is not UTF-8''...")
    try:
        return unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError as error:
        raise _malformed("its filename* is not UTF-8") from error


def _skipped(header: str, position: int) -> int:
    space = _SPACE.match(header, position)
    return space.end() if space else position


def _malformed(reason: str) -> BadRequest:
    return BadRequest(f"The form is malformed: {reason}.", param="file")
