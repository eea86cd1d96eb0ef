"""When a call is made again, and after which pause: the rules of the official SDKs.

Repeated: no answer at all, 408, 409, 429 and 500 or more, unless the service says otherwise (``x-should-retry``).
The pause is the service's ``retry-after-ms`` or ``Retry-After``, else 0.5 s doubled each time up to 8 s, less up to a
quarter by chance so that many clients do not come back at once. A service that asks for more than two minutes is not
waited for. A body that can be read only once is not sent twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from slackwater.client.calls import Reply
from slackwater.client.errors import ServiceUnreachable

Outcome = Reply | ServiceUnreachable

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 8.0
_LONGEST_ASKED_SECONDS: Final = 120.0
_JITTER_SHARE: Final = 0.25
_REPEATED: Final = frozenset({408, 409, 429})
_FAILED_FROM: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """How often, with which chance."""

    max_retries: int = 2
    """Attempts after the first one."""
    jitter: Callable[[], float]
    """Gives 0 to 1, anew at each call."""

    def pause_seconds(self, attempt: int, outcome: Outcome, *, repeatable: bool = True) -> float | None:
        """Say how long to wait before the next attempt; None where ``outcome`` stands. ``attempt`` counts from 0."""
        if attempt >= self.max_retries or not repeatable or not _worth_another(outcome):
            return None
        asked = None if isinstance(outcome, ServiceUnreachable) else retry_after_seconds(outcome.headers)
        if asked is not None and asked > _LONGEST_ASKED_SECONDS:
            return None
        return asked or self.backoff_seconds(attempt)

    def backoff_seconds(self, attempt: int) -> float:
        """Say how long to wait where the service has not said it; ``attempt`` counts from 0."""
        # The exponent is bounded: a watch over a long outage must not overflow the float.
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 16), _LONGEST_PAUSE_SECONDS)
        return pause * (1 - _JITTER_SHARE * self.jitter())


def settled(outcome: Outcome) -> Reply:
    """Return the reply, whatever its status. Raises the ServiceUnreachable."""
    if isinstance(outcome, ServiceUnreachable):
        raise outcome
    return outcome


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Read the pause the service asks for: never negative, None where it asks for none or it cannot be read.

    An HTTP date is measured from the reply's own ``Date``, so that a wrong clock here does no harm.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        pause = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return max(pause.total_seconds(), 0.0)


def _worth_another(outcome: Outcome) -> bool:
    if isinstance(outcome, ServiceUnreachable):
        return True
    match outcome.headers.get("x-should-retry"):
        case "true":
            return True
        case "false":
            return False
        case _:
            return outcome.status in _REPEATED or outcome.status >= _FAILED_FROM


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    # "nan" compares false with everything and is refused here too.
    return number if number is not None and 0 <= number < float("inf") else None
