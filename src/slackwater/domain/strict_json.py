"""JSON as the standard has it, and what to tell the author of a line that is not.

msgspec's full decoding refuses NaN, Infinity, numbers that overflow (1e400, integers of thousands of digits), broken
UTF-8, half surrogate pairs and anything after the value; it keeps integers of any size exactly and stops at a thousand
levels at no cost. Depth and repeated keys it leaves to us.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import msgspec

from slackwater.domain.input_errors import Problem

MAX_DEPTH: Final = 100
"""Levels of a request, its own braces included. No real one has twenty."""
LEAST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**64 - 1

BAD_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What :data:`decode` raises."""

decode: Final[Callable[[bytes], object]] = msgspec.json.Decoder().decode

_ONE_LINE: Final = "Write each request as one JSON object on one line of its own."
_CODE: Final = "invalid_json_line"

TOO_DEEP: Final = Problem(code=_CODE, message=f"This line is nested deeper than {MAX_DEPTH} levels.")
UTF16: Final = Problem(
    code=_CODE,
    message="The file must be UTF-8 text, but it looks like UTF-16 or a compressed file. Save it as plain UTF-8.",
    undecodable=True,
)
NOT_AN_OBJECT: Final = Problem(
    code="invalid_request",
    message=f"This line is JSON, but not an object. {_ONE_LINE}",
    fragment=True,
)
_OUT_OF_RANGE: Final = Problem(code=_CODE, message="A number on this line is too large for any reader of JSON.")


class _NotANumber(Exception):
    """NaN or an infinity was met."""


class _Pairs(list[tuple[str, object]]):
    """An object with repeated keys kept."""


def explain(line: bytes, error: Exception) -> Problem:
    """Say why :data:`decode` refused a line with ``error``. May take a hundred times as long as decoding."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        message = f"The file must be UTF-8 text, but byte {wrong.start + 1} of this line is not. Save it as UTF-8."
        return Problem(code=_CODE, message=message, undecodable=True)
    try:
        _STRICTER.decode(text)
    except _NotANumber:
        return Problem(code=_CODE, message="NaN and Infinity are not JSON. Write null, or leave the key out.")
    except json.JSONDecodeError as wrong:
        return _syntax(text, wrong)
    except RecursionError:
        return TOO_DEEP
    if isinstance(error, msgspec.ValidationError):
        return _OUT_OF_RANGE
    return Problem(code=_CODE, message="A string on this line holds half of a \\uD800-\\uDFFF surrogate pair.")


def too_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    """Tell whether a decoded value has more than ``levels`` levels of arrays and objects."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not level:
            return False
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def repeated_key(line: bytes, *, top: Mapping[str, bytes], body: Mapping[str, bytes]) -> str | None:
    """Name a key of ``top``, or of ``body`` within the object's ``body``, that stands there twice; None if none does.

    ``line`` is an object that :data:`decode` took. Exact but slow: the reader of duplicates is Python.
    """
    request: _Pairs = _READ_PAIRS.decode(line.decode())
    for key in _twice(request):
        if key in top:
            return key
    for name, value in request:
        if name == "body" and isinstance(value, _Pairs):
            for key in _twice(value):
                if key in body:
                    return f"body.{key}"
    return None


def _twice(pairs: _Pairs) -> list[str]:
    counts = Counter(key for key, _ in pairs)
    return [key for key, count in counts.items() if count > 1]


def _syntax(text: str, wrong: json.JSONDecodeError) -> Problem:
    if wrong.msg == "Extra data":
        message = f"There is more than one JSON value on this line (the second begins at character {wrong.pos + 1})."
        return Problem(code=_CODE, message=f"{message} {_ONE_LINE}", fragment=True)
    if wrong.pos >= len(text.rstrip()) or wrong.msg.startswith("Unterminated string"):
        message = f"This line begins a JSON value that does not end on it. {_ONE_LINE}"
        return Problem(code=_CODE, message=message, fragment=True, opens=text.startswith(("{", "[")))
    what = wrong.msg.lower().removesuffix(" at")
    message = f"This line is not valid JSON ({what} at character {wrong.pos + 1}). {_ONE_LINE}"
    return Problem(code=_CODE, message=message, fragment=True)


def _refuse_constant(_: str) -> NoReturn:
    raise _NotANumber


# Numbers stay text: reading them is what failed.
_STRICTER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)
_READ_PAIRS: Final = json.JSONDecoder(parse_int=str, parse_float=str, object_pairs_hook=_Pairs)
