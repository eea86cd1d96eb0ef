"""Everything an engine can do wrong, by name: for tests, and for seeing what the service does about it.

A body asks for a fault by a mark anywhere in its text: ``~fault:empty_500~`` always, ``~fault:empty_500*2~`` the first
two times that very body comes. A plan deals faults out by chance instead, the same for the same seed and bodies. An
engine that is ill gives every body the same fault, until it is well again.
"""

import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Canned:
    """A reply with this status, these headers and these bytes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer, ever; the slot stays taken."""


@dataclass(frozen=True, slots=True)
class BreakOff:
    """Half an answer, then the connection ends."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection ends before the first byte of an answer, as when it was idle for too long."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The whole engine dies, and everything in flight with it."""


@dataclass(frozen=True, slots=True)
class Flood:
    """An answer without an end, as fast as it is read."""


@dataclass(frozen=True, slots=True)
class Trickle:
    """An answer without an end, byte by byte; the slot stays taken."""


Fault = Canned | Silence | BreakOff | HangUp | Crash | Flood | Trickle


def _chat(message: bytes = b'"hi"', *, tail: bytes = b"null", model: bytes = b"test-model") -> bytes:
    """A chat completion whose content, log-probabilities and model are given as JSON."""
    return (
        b'{"id": "x", "object": "chat.completion", "created": 1, "model": "%b", "choices": [{"index": 0, "message": '
        b'{"role": "assistant", "content": %b}, "finish_reason": "stop", "logprobs": %b}], "usage": '
        b'{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}'
    ) % (model, message, tail)


def _logprob(number: bytes) -> bytes:
    return b'{"content": [{"token": "h", "logprob": %b, "bytes": null, "top_logprobs": []}]}' % number


_BUSY: Final = b'{"error": {"message": "busy"}}'
_OUT_OF_MEMORY: Final = (
    b'{"error": {"message": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB of'
    b' which 1.02 GiB is free.", "type": "InternalServerError", "param": null, "code": 500}}'
)
_MODEL_GONE: Final = (
    b'{"error": {"message": "The model `test-model` does not exist.", "type": "NotFoundError", "param": "model", '
    b'"code": 404}}'
)
_USAGE_AT: Final = _chat().index(b', "usage"')

FAULTS: Final[dict[str, Fault]] = {
    "good": Canned(body=_chat()),
    # 2xx whose body is wrong, or odd.
    "nan_logprob": Canned(body=_chat(tail=_logprob(b"NaN"))),
    "minus_inf_logprob": Canned(body=_chat(tail=_logprob(b"-Infinity"))),
    "lone_surrogate": Canned(body=_chat(b'"bad \\ud83d half"')),
    "nul_in_text": Canned(body=_chat(b'"a\\u0000b"')),
    "u2028_in_text": Canned(body=_chat(b'"a\\u2028b\\u0085c"')),
    "u2028_raw": Canned(body=_chat('"a\u2028b\u2029c\u0085d"'.encode())),
    "newline_in_text": Canned(body=_chat(b'"a\\nb\\r\\nc"')),
    "pretty_printed": Canned(body=_chat().replace(b", ", b",\r\n  ") + b"\n"),
    "empty_choices": Canned(body=_chat().replace(_chat()[_chat().index(b"[{") : _USAGE_AT], b"[]")),
    "null_content": Canned(body=_chat(b"null")),
    "no_usage": Canned(body=_chat()[:_USAGE_AT] + b"}"),
    "wrong_model_echo": Canned(body=_chat(model=b"something-else")),
    "error_body_with_200": Canned(body=b'{"error": {"message": "boom", "type": "server_error", "code": 500}}'),
    "truncated_json": Canned(body=_chat()[: -len(b' "total_tokens": 2}}')]),
    "latin1_bytes": Canned(body=_chat(b'"\xe9"')),
    "garbage": Canned(body=b"\x00\xff not JSON at all"),
    "empty_200": Canned(),
    # Refusals.
    "object_error_400": Canned(
        status=400,
        body=b'{"object": "error", "message": "too long", "type": "BadRequestError", "param": null, "code": 400}',
    ),
    "unauthorized_401": Canned(status=401, body=b'{"error":"Unauthorized"}'),
    "model_gone_404": Canned(status=404, body=_MODEL_GONE),
    "429_retry_after_2": Canned(status=429, body=_BUSY, headers={"retry-after": "2"}),
    "429_retry_after_date": Canned(status=429, body=_BUSY, headers={"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}),
    "429": Canned(status=429, body=_BUSY),
    "503_then_ok": Canned(status=503, body=b'{"error": {"message": "loading"}}'),
    "503_retry_after_1": Canned(status=503, body=_BUSY, headers={"retry-after": "1"}),
    "503": Canned(status=503, body=b'{"error": {"message": "loading"}}'),
    "500": Canned(status=500, body=b'{"error": {"message": "boom", "type": "InternalServerError", "code": 500}}'),
    "empty_500": Canned(status=500),
    "out_of_memory_500": Canned(status=500, body=_OUT_OF_MEMORY),
    "html_502": Canned(
        status=502, body=b"<html><body>Bad Gateway</body></html>", headers={"content-type": "text/html"}
    ),
    "redirect": Canned(status=307, headers={"location": "http://127.0.0.1:9/"}),
    # No answer.
    "never_answers": Silence(),
    "close_mid_body": BreakOff(),
    "hang_up": HangUp(),
    "flood": Flood(),
    "trickle": Trickle(),
    "crash": Crash(),
}
"""Every fault by its name."""

_ONCE: Final = frozenset({"503_then_ok"})
_TILDE: Final = 0x7E
_MARK: Final = re.compile(rb"~fault:([a-z0-9_]+)(?:\*([0-9]+))?~")


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultPlan:
    """Which share of requests meets which fault; every attempt at a body is dealt anew."""

    seed: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of requests, 0 to 1, by a fault's name."""


class Faults:
    """Deals out faults, by mark and by plan. A body without a mark and without a plan costs 0.1 µs."""

    def __init__(self, plan: FaultPlan | None = None) -> None:
        """Raises KeyError for a name that no fault has."""
        self.illness: Fault | None = None
        """What every body meets; None while the engine is well."""
        self._dealt: Counter[bytes] = Counter()
        self._plan = plan if plan is not None and plan.shares else None
        self._planned = [(FAULTS[name], share) for name, share in plan.shares.items()] if plan is not None else []

    def deal(self, body: bytes) -> Fault | None:
        """Return the fault that this arrival of the body meets, None for none."""
        if self.illness is not None:
            return self.illness
        if _TILDE in body and (mark := _MARK.search(body)) is not None:
            return self._by_mark(body, mark[1].decode(), mark[2])
        if self._plan is not None:
            return self._by_plan(body, self._plan.seed)
        return None

    def _by_mark(self, body: bytes, name: str, times: bytes | None) -> Fault | None:
        most = int(times) if times is not None else 1 if name in _ONCE else None
        if most is not None:
            if self._dealt[body] >= most:
                return None
            self._dealt[body] += 1
        return FAULTS.get(name)

    def _by_plan(self, body: bytes, seed: int) -> Fault | None:
        draw = zlib.crc32(b"%d:%d:" % (seed, self._dealt[body]), zlib.crc32(body)) / 2**32
        for fault, share in self._planned:
            if draw < share:
                self._dealt[body] += 1
                return fault
            draw -= share
        return None
