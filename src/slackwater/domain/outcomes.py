"""What one attempt at a line came to.

::

    answer of the engine                      outcome
    2xx with a JSON object                    Done
    2xx with an error object                  as the status it names, else as a 500
    400 401 403 404 405 413 422 …             Dead: the same request would be refused again
    408 409 425, 500 502 504 …, a redirect,
    garbage, no answer in time                Retry, counted against the line; Dead at the last attempt
    429 503 529                               Retry, not counted: the engine was full, not the line wrong;
                                              Retry-After is a floor; Dead when the engine never takes it
    an answer of another model                as garbage
    answer over the size limit                Dead
    no connection                             Retry, not counted; Released when patience ends
    the connection broke, the engine lives    Retry, counted against the line; Dead at the last attempt

An answer that may say more of the engine than of the line is doubtful: it becomes one of these only when the engine has
proved that it is well (``domain/proofs``). Where it was ill instead, the line is spared (:func:`spared`).

Pure: chance comes in as ``jitter``. The common case costs about 2 µs, reading the reply included.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from slackwater.domain.errors import (
    EngineBroke,
    EngineError,
    EngineReplyTooLarge,
    EngineTimeout,
    EngineWrongModel,
)
from slackwater.domain.line_errors import (
    ERROR_STATUSES,
    REPLY_TOO_LARGE,
    REQUEST_TIMEOUT,
    SERVER_ERRORS,
    LineError,
    error_from_reply,
    status_in,
    unusable_reply,
)
from slackwater.domain.replies import Reply, read_object
from slackwater.domain.usage import Usage

_SUCCESS: Final = range(200, 300)
_TRY_AGAIN: Final = frozenset({408, 409, 425})
"""4xx that say nothing about the request itself."""
FULL: Final = frozenset({429, 503, 529})
"""The engine takes no more work now; 529 is Anthropic's way to say so."""
LOST: Final = frozenset({401, 403, 404})
"""What an engine answers to everything when it has lost its model, or our key is no longer good."""
_MOST_DOUBLINGS: Final = 30
_NO_STATUS_OF_ITS_OWN: Final = 500
"""What an error object counts as that came with 2xx and names no status."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """The line has its result: 2xx."""

    status: int
    body: bytes
    """The reply as one line of strict JSON."""
    usage: Usage
    model: str | None
    """The model that the engine says has answered."""
    mended: bool
    """Whether the reply held something that is not JSON (NaN, half a surrogate pair) and was mended."""


class Retry(msgspec.Struct, frozen=True, gc=False):
    """Try the line again after a pause."""

    delay_seconds: float
    counts_against_line: bool
    error: LineError
    """What the line would end with if this had been the last attempt."""


class Dead(msgspec.Struct, frozen=True, gc=False):
    """The line ends with this error."""

    error: LineError


class Released(msgspec.Struct, frozen=True, gc=False):
    """The line goes back unrun, at no cost to it: the engine is away, and another worker may have one."""

    error: LineError


Failure = Retry | Dead | Released


class Attempts(NamedTuple):
    """What a line has behind it."""

    counted: int = 0
    """Failed attempts that count against the line."""
    uncounted: int = 0
    """Attempts that came to nothing through no fault of the line's."""

    def after(self, retry: Retry) -> "Attempts":
        """Return the tally with one more failed attempt."""
        if retry.counts_against_line:
            return Attempts(self.counted + 1, self.uncounted)
        return Attempts(self.counted, self.uncounted + 1)


NO_ATTEMPTS: Final = Attempts()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often and how long a line is tried again within one lease."""

    max_attempts: int = 5
    """Attempts that may count against a line; the last one's error is the line's."""
    max_uncounted_attempts: int = 40
    """Patience with an engine that is full or away: about 15 minutes of pauses with the values below."""
    first_pause_seconds: float = 0.5
    """Doubled with every attempt of the same kind; jitter takes up to half away."""
    longest_pause_seconds: float = 30.0
    longest_retry_after_seconds: float = 120.0
    """An engine that asks for more is asked again after this long."""


def success(answer: Reply | EngineError) -> Done | None:
    """Return the line's result where the answer is one; any other answer is for :func:`failure`."""
    if not isinstance(answer, Reply) or answer.status not in _SUCCESS:
        return None
    reading = read_object(answer.body)
    if reading is None or reading.is_error:
        return None
    return Done(answer.status, reading.body, reading.usage, reading.model, reading.mended)


def meant_status(reply: Reply) -> int | None:
    """Return the status that a reply which is no :func:`success` means; None for a 2xx that is no JSON object."""
    if reply.status not in _SUCCESS:
        return reply.status
    if read_object(reply.body) is None:
        return None
    return status_in(reply.body) or _NO_STATUS_OF_ITS_OWN


def is_doubtful(answer: Reply | EngineError, *, policy: RetryPolicy, attempts: Attempts = NO_ATTEMPTS) -> bool:
    """Tell whether an answer that is no :func:`success` may say more of the engine than of the line.

    A full engine is in doubt only where the line would end of it: until then the line waits, at no cost.
    """
    if isinstance(answer, EngineError):
        return True
    status = meant_status(answer)
    if status in FULL:
        return attempts.uncounted + 1 >= policy.max_uncounted_attempts
    return status not in ERROR_STATUSES or status in SERVER_ERRORS or status in LOST


def is_suspect(answer: Reply | EngineError) -> bool:
    """Tell whether a doubtful answer came to a request that the engine had taken in, and may be ill or dead of."""
    if isinstance(answer, Reply):
        status = meant_status(answer)
        return status in SERVER_ERRORS and status not in FULL
    return isinstance(answer, EngineBroke | EngineTimeout)


def spared(
    answer: Reply | EngineError, *, policy: RetryPolicy, jitter: float, attempts: Attempts = NO_ATTEMPTS
) -> Retry | Dead:
    """Decide what follows from a suspect answer of an engine that was ill: it costs the line no attempt.

    A line that has met that for as often as patience lasts ends with what it got: the engine may be ill of it.
    """
    error = failure(answer, policy=policy, jitter=jitter).error
    if attempts.uncounted + 1 >= policy.max_uncounted_attempts:
        return Dead(error)
    return Retry(_pause(attempts.uncounted, policy, jitter), counts_against_line=False, error=error)


def failure(
    answer: Reply | EngineError, *, policy: RetryPolicy, jitter: float, attempts: Attempts = NO_ATTEMPTS
) -> Failure:
    """Decide what follows from an answer that is no :func:`success`.

    ``attempts`` is the tally before this one; ``jitter`` is a fresh random number in [0, 1).
    """
    if isinstance(answer, EngineError):
        return _no_answer(answer, policy, jitter, attempts)
    status = meant_status(answer)
    if status is None:
        return _counted(unusable_reply("The engine's answer was not a JSON object."), policy, jitter, attempts)
    return _by_status(status, answer.body, answer.retry_after_seconds or 0.0, policy, jitter, attempts)


def _by_status(
    status: int, body: bytes, retry_after_seconds: float, policy: RetryPolicy, jitter: float, attempts: Attempts
) -> Failure:
    if status not in ERROR_STATUSES:
        error = unusable_reply(f"The engine answered with status {status}, which is no result.")
        return _counted(error, policy, jitter, attempts)
    error = error_from_reply(status, body)
    if status in FULL:
        if attempts.uncounted + 1 >= policy.max_uncounted_attempts:
            return Dead(error)
        floor = min(retry_after_seconds, policy.longest_retry_after_seconds)
        # Spread a little past the floor: all lines in flight were told the same moment.
        pause = max(_pause(attempts.uncounted, policy, jitter), floor * (1.0 + jitter / 10))
        return Retry(pause, counts_against_line=False, error=error)
    if status not in SERVER_ERRORS and status not in _TRY_AGAIN:
        return Dead(error)
    return _counted(error, policy, jitter, attempts)


def _no_answer(fault: EngineError, policy: RetryPolicy, jitter: float, attempts: Attempts) -> Failure:
    if isinstance(fault, EngineReplyTooLarge):
        return Dead(REPLY_TOO_LARGE)
    if isinstance(fault, EngineTimeout):
        return _counted(REQUEST_TIMEOUT, policy, jitter, attempts)
    if isinstance(fault, EngineWrongModel):
        return _counted(unusable_reply(str(fault)), policy, jitter, attempts)
    error = LineError(status=None, code="engine_unreachable", message=str(fault), type="server_error")
    if isinstance(fault, EngineBroke):
        return _counted(error, policy, jitter, attempts)
    if attempts.uncounted + 1 >= policy.max_uncounted_attempts:
        return Released(error)
    return Retry(_pause(attempts.uncounted, policy, jitter), counts_against_line=False, error=error)


def _counted(error: LineError, policy: RetryPolicy, jitter: float, attempts: Attempts) -> Retry | Dead:
    if attempts.counted + 1 >= policy.max_attempts:
        return Dead(error)
    return Retry(_pause(attempts.counted, policy, jitter), counts_against_line=True, error=error)


def _pause(attempts: int, policy: RetryPolicy, jitter: float) -> float:
    doubled = policy.first_pause_seconds * 2.0 ** min(attempts, _MOST_DOUBLINGS)
    return min(doubled, policy.longest_pause_seconds) * (1.0 - jitter / 2)
