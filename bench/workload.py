"""Batch inputs of an exact line length, the same bytes every time."""

import json
from pathlib import Path
from typing import Final

PATH: Final = "/v1/chat/completions"
SMALL_LINE_BYTES: Final = 544
LARGE_LINE_BYTES: Final = 4096
SIMULATED: Final = "simulated"
_SYSTEM: Final = "You sort support tickets into one of five queues and say why in one short sentence."
_WORDS: Final = (
    "harbour pilot tablet shows the tide table of yesterday and nobody on the quay can say when the lock will open so "
    "please look into it before the evening ferry arrives because the last time this happened two ships had to wait "
)
_TAPE: Final = _WORDS * (LARGE_LINE_BYTES // len(_WORDS) + 2)
_GROUP: Final = 10_000
_ENGINE_TOKENS: Final = 64


def request_line(number: int, *, line_bytes: int, model: str = SIMULATED) -> bytes:
    """Return one chat request as a line of exactly so many bytes, its LF included; each number's line is its own."""
    empty = _encoded(number, "", model)
    lead = f"Ticket {number}: "
    room = line_bytes - len(empty) - len(lead)
    start = number % len(_WORDS)
    return _encoded(number, lead + _TAPE[start : start + room], model)


def engine_line(number: int, *, model: str) -> bytes:
    """Return one short chat request whose answer has 64 tokens exactly, whatever the model would say."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Ticket {number}: {_TAPE[number % 97 : number % 97 + 60]}"}],
        "max_tokens": _ENGINE_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    return _line(number, body)


def write_requests(path: Path, count: int, *, line_bytes: int) -> Path:
    """Write a batch input and return its path."""
    with path.open("wb") as file:
        for first in range(0, count, _GROUP):
            numbers = range(first, min(count, first + _GROUP))
            file.write(b"".join(request_line(number, line_bytes=line_bytes) for number in numbers))
    return path


def write_engine_requests(path: Path, count: int, *, model: str, first: int = 0) -> Path:
    """Write a batch input for a real engine and return its path; ``first`` numbers its first request."""
    path.write_bytes(b"".join(engine_line(number, model=model) for number in range(first, first + count)))
    return path


def _encoded(number: int, content: str, model: str) -> bytes:
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": content}]
    return _line(number, {"model": model, "messages": messages, "max_tokens": _ENGINE_TOKENS, "temperature": 0})


def _line(number: int, body: dict[str, object]) -> bytes:
    return (
        json.dumps({"custom_id": f"request-{number:08d}", "method": "POST", "url": PATH, "body": body}).encode() + b"\n"
    )
