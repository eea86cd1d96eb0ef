"""What the soak's customers send: the lines of one order, and what must come of each of them."""

import enum
import json
import random
import zlib
from dataclasses import dataclass
from typing import Any, Final

MODEL: Final = "simulated"
ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
_FAULTS_ONCE: Final = ("503_then_ok", "empty_500*1", "truncated_json*1", "garbage*1", "429_retry_after_2*1")
"""What an engine does to a flaky line the first time it sees it; breaking off the connection is left out, since an
engine that breaks off the one request it runs cannot be told from one that dies of it."""


class Kind(enum.Enum):
    """What a line is, and so what must come of it."""

    GOOD = "good"
    FLAKY = "flaky"
    """Answered once it is tried again."""
    REFUSED = "refused"
    """The engine answers 400."""
    INVALID = "invalid"
    """Planning refuses it, or the whole file for it."""
    POISON = "poison"
    """It kills the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One line as the soak remembers it."""

    custom_id: str
    kind: Kind
    digest: int
    """CRC-32 of its body, which every answer of the simulated engine begins with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixture:
    """How many lines an order has, and how many of them are no good ones."""

    total: int
    flaky: int = 0
    refused: int = 0
    invalid: int = 0
    poison: int = 0


def write_lines(name: str, endpoint: str, mixture: Mixture, *, seed: int) -> tuple[bytes, list[Asked]]:
    """Return the input file of an order and what each line of it is: the same for the same arguments."""
    dice = random.Random(f"{seed}:{name}")
    kinds = [
        *[Kind.FLAKY] * mixture.flaky,
        *[Kind.REFUSED] * mixture.refused,
        *[Kind.INVALID] * mixture.invalid,
        *[Kind.POISON] * mixture.poison,
    ]
    kinds += [Kind.GOOD] * (mixture.total - len(kinds))
    dice.shuffle(kinds)
    rows, asked = [], []
    for number, kind in enumerate(kinds):
        custom_id = f"{name}-{number:05d}"
        body = _body(endpoint, f"{custom_id} {_mark(kind, dice)}", most_tokens=dice.randrange(8, 48))
        if kind is Kind.REFUSED:
            body["temperature"] = 9.0
        if kind is Kind.INVALID:
            body["stream"] = True
        rows.append(json.dumps({"custom_id": custom_id, "method": "POST", "url": endpoint, "body": body}))
        asked.append(Asked(custom_id=custom_id, kind=kind, digest=zlib.crc32(json.dumps(body).encode())))
    return "\n".join(rows).encode() + b"\n", asked


def answer_digest(endpoint: str, answer: dict[str, Any]) -> int | None:
    """Return the digest of the body that an answer was made of; None for vectors, which do not say."""
    match endpoint:
        case "/v1/chat/completions":
            text = answer["choices"][0]["message"]["content"]
        case "/v1/completions":
            text = answer["choices"][0]["text"]
        case "/v1/responses":
            text = answer["output"][0]["content"][0]["text"]
        case _:
            return None
    return int(text[:8], 16)


def _mark(kind: Kind, dice: random.Random) -> str:
    """Ask the simulated engine for what the line is to do to it."""
    match kind:
        case Kind.FLAKY:
            return f"~fault:{dice.choice(_FAULTS_ONCE)}~"
        case Kind.POISON:
            return "~fault:crash~"
        case _:
            return "hello"


def _body(endpoint: str, text: str, *, most_tokens: int) -> dict[str, Any]:
    match endpoint:
        case "/v1/chat/completions":
            return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": most_tokens}
        case "/v1/completions":
            return {"model": MODEL, "prompt": text, "max_tokens": most_tokens}
        case "/v1/responses":
            return {"model": MODEL, "input": text, "max_output_tokens": most_tokens}
        case _:
            return {"model": MODEL, "input": text}
