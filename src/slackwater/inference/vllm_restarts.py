"""When an engine that died is started again, and who is told."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    """How an engine that died comes back."""

    first_seconds: float = 1.0
    """Pause before the first restart; it doubles with each one that follows closely."""
    most_seconds: float = 60.0
    settled_seconds: float = 120.0
    """An engine that was ready for so long has its earlier deaths forgotten."""
    start_timeout_seconds: float = 1800.0
    """A start that takes longer has failed: large models load for many minutes."""
    starts_before_giving_up: int = 3
    """An engine that was never ready after so many starts never will be."""

    def pause(self, deaths: int) -> float:
        """Return the seconds to wait after the given number of deaths in a row, 1 or more."""
        return min(self.most_seconds, self.first_seconds * 2.0 ** min(deaths - 1, 30))


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmEvents:
    """Calls that an observer gets; they must return at once and not raise."""

    ready: Callable[[float], None] = lambda _seconds: None
    """An engine is ready; takes the seconds since its start."""
    died: Callable[[str], None] = lambda _last_words: None
    """An engine ended though nobody asked it to; takes the end of its log."""
