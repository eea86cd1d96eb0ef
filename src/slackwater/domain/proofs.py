"""How an engine proves that it is well: it answers a tiny request of ours.

``/health`` proves nothing, and neither does an answer to somebody's line: a line may be refused, or crash, for reasons
of its own. So before a doubtful answer is held against a line, the engine gets one that nothing can be wrong with.

::

    answer to the proof request               what it shows
    2xx of the model that was asked for       well
    2xx of another model                      ill
    429 503 529                               full: it takes nothing from anybody
    400 401 403 404 405 413 415 422 501       this kind of request is not for this model, or the model is gone:
                                              the next kind is asked
    every kind refused                        well if one was understood (400, 422 …); ill if all were 401, 403 or 404
    no answer in time                         silent: it hangs, or is only busy
    anything else                             ill
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from slackwater.domain.errors import EngineError, EngineTimeout
from slackwater.domain.outcomes import FULL, LOST, meant_status, success
from slackwater.domain.replies import Reply

_REQUESTS: Final[dict[str, dict[str, object]]] = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/embeddings": {"input": "a"},
    # OpenAI's own server takes no bound below 16 here.
    "/v1/responses": {"input": "a", "max_output_tokens": 16},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
}
_ASKED_OF_ALL: Final = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings")
_NOT_FOR_IT: Final = frozenset({400, 405, 413, 415, 422, 501})
"""How an engine that is well refuses a kind of request that its model is not made for."""


@dataclass(frozen=True, slots=True)
class Well:
    """The engine answers: what it says of a line is about the line."""


@dataclass(frozen=True, slots=True)
class Full:
    """The engine takes nothing now."""

    retry_after_seconds: float


@dataclass(frozen=True, slots=True)
class Ill:
    """The engine answers, but nobody gets a result."""

    cause: str
    """For an operator."""


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer came in time."""


@dataclass(frozen=True, slots=True)
class Refused:
    """This kind of request proves nothing."""

    status: int


Health = Well | Full | Ill | Silent


def proof_requests(model: str, endpoint: str | None) -> list[tuple[str, bytes]]:
    """Return the requests to ask for a proof with, path and body, the likeliest first.

    ``endpoint`` is the one whose answers are in doubt: an engine may have lost one and not another.
    """
    paths = [path for path in dict.fromkeys((endpoint, *_ASKED_OF_ALL)) if path in _REQUESTS]
    return [(path, msgspec.json.encode({"model": model, **_REQUESTS[path]})) for path in paths]


def judge(answer: Reply | EngineError, *, names: Collection[str]) -> Health | Refused:
    """Conclude from the answer to one proof request; ``names`` are those that a good answer may name its model by."""
    if isinstance(answer, EngineTimeout):
        return Silent()
    if isinstance(answer, EngineError):
        return Ill(str(answer))
    done = success(answer)
    if done is not None:
        return Well() if done.model is None or done.model in names else Ill(f"it answers as {done.model!r}")
    status = meant_status(answer)
    if status in FULL:
        return Full(answer.retry_after_seconds or 0.0)
    if status is not None and (status in LOST or status in _NOT_FOR_IT):
        return Refused(status)
    return Ill("its answer is no JSON object" if status is None else f"its answer has status {status}")


def judge_refusals(refusals: Sequence[Refused]) -> Well | Ill:
    """Conclude from the refusals of every kind of proof request.

    A model that none of them is made for is taken to be well where the engine understood one of them.
    """
    if any(refusal.status in _NOT_FOR_IT for refusal in refusals):
        return Well()
    statuses = ", ".join(str(refusal.status) for refusal in refusals)
    return Ill(f"it refuses every request, with status {statuses}")
