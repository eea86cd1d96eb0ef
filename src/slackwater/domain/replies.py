"""An engine's answer, and the strict reading of one that claims success.

What goes into a customer's output file must be JSON for every reader and one physical line for every reader, also for
those that split on Unicode line ends. msgspec checks the whole grammar while it skips what nobody asked for, all but
UTF-8, which is checked apart; numbers are checked as written, not for range.
Engines do emit NaN log-probabilities, half surrogate pairs and broken UTF-8. The work behind such an answer is done
and running it again gives the same, so it is mended: NaN and infinities become null, text that is no text becomes
U+FFFD. Only what is no JSON object even then is unreadable.
"""

import json
import math
import re
from typing import Final, NamedTuple

import msgspec

from slackwater.domain.usage import Usage, UsageFields, usage_of, usage_of_value


class Reply(NamedTuple):
    """One HTTP answer of an engine, whatever its status."""

    status: int
    """HTTP status, never 0: no answer at all is an :class:`~slackwater.domain.errors.EngineError`."""
    body: bytes
    """Raw bytes as they came; not necessarily JSON."""
    retry_after_seconds: float | None = None
    """The engine's Retry-After in seconds, None where absent or unreadable."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """A body that is one strict JSON object on one line."""

    body: bytes
    """The engine's own bytes where they were fit to be written, else the mended text; no line end of any reader."""
    usage: Usage
    model: str | None
    """The model that the engine says has answered; None where it does not say."""
    is_error: bool
    """Whether the object is an error report, whatever status it came with."""
    mended: bool
    """Whether content was changed (see the module), so that it can be counted and logged."""


class _Facts(msgspec.Struct, gc=False):
    """The few keys of a reply that the service looks at."""

    usage: UsageFields | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")
    model: str | None = None
    object: str | None = None


_read_facts: Final = msgspec.json.Decoder(_Facts).decode
_LF: Final = 10
_CR: Final = 13
_NULL: Final = msgspec.Raw(b"null")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def read_object(body: bytes) -> Reading | None:
    """Read a reply's body strictly; None if no JSON object can be made of it. Costs about 1 µs for 400 bytes."""
    is_ascii = body.isascii()
    try:
        if not is_ascii:
            body.decode()
        facts = _read_facts(body)
    except msgspec.ValidationError:
        return _read_oddly_typed(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _mend(body)
    is_error = facts.error != _NULL or facts.object == "error"
    if not is_ascii or _LF in body or _CR in body:
        body = one_line(body)
    return Reading(body, usage_of(facts.usage), facts.model, is_error, mended=False)


def one_line(body: bytes) -> bytes:
    """Return valid JSON on one line for every reader: layout is dropped, U+0085, U+2028 and U+2029 are escaped."""
    if _LF in body or _CR in body:
        body = msgspec.json.format(body, indent=-1)
    if body.isascii():
        return body
    # In valid JSON, a character outside ASCII stands in a string, where its escape means the same.
    return (
        body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")
    )


def parse_leniently(body: bytes) -> dict[str, object] | None:
    """Decode a JSON object as far as it can be understood; None if it is none. May hold lone surrogates."""
    try:
        value = _LENIENT.decode(body.decode("utf-8", "replace").lstrip("\ufeff").strip())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_oddly_typed(body: bytes) -> Reading | None:
    """Read a reply whose ``usage`` or ``model`` is of another type than it should be, or that is no object."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _mend(body)
    return _reading(one_line(body), value, mended=False) if isinstance(value, dict) else None


def _mend(body: bytes) -> Reading | None:
    value = parse_leniently(body)
    if value is None:
        return None
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _reading(one_line(_SURROGATE.sub("\ufffd", text).encode()), value, mended=True)


def _reading(body: bytes, value: dict[str, object], *, mended: bool) -> Reading:
    model = value.get("model")
    return Reading(
        body,
        usage_of_value(value.get("usage")),
        model if isinstance(model, str) else None,
        value.get("error") is not None or value.get("object") == "error",
        mended,
    )


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


# NaN, Infinity, numbers out of range become null; raw control characters in strings are let through, to be escaped.
_LENIENT: Final = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite, strict=False)
