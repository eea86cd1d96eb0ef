"""How a watch asks for a batch's state: quickly at first, then at a steady interval, and with patience.

A batch of a few lines ends within a second or two, so the first pauses are short. A service that is away for a while
(a restart, a new version) does not end a watch: the batch goes on without it.
"""

from dataclasses import dataclass
from typing import Final

from slackwater.client.errors import ClientError, ServiceFailed, ServiceUnreachable

_FIRST_SECONDS: Final = 0.2
_GROWTH: Final = 1.5
_LONGEST_OUTAGE_PAUSE_SECONDS: Final = 15.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Polling:
    """The pace of one watch."""

    interval_seconds: float = 2.0
    """The steady pause between two looks."""
    patience: int = 12
    """Looks in a row that may fail (each with its own retries) before the watch gives up; the pauses double up to
    15 s, so 12 are more than two minutes."""

    def pause_seconds(self, looks: int, *, asked_seconds: float | None = None) -> float:
        """Say how long to wait after ``looks`` looks; never shorter than the service asked for."""
        quick = _FIRST_SECONDS * _GROWTH ** min(looks, 32)
        return max(min(quick, self.interval_seconds), asked_seconds or 0.0)

    def outage_pause_seconds(self, error: ClientError, missed: int) -> float | None:
        """Say how long to wait after ``missed`` failed looks in a row (1 is the first); None where ``error`` stands."""
        if not isinstance(error, ServiceUnreachable | ServiceFailed) or missed > self.patience:
            return None
        return min(max(self.interval_seconds, 0.5) * 2.0 ** min(missed - 1, 16), _LONGEST_OUTAGE_PAUSE_SECONDS)
