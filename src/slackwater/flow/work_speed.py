"""How fast a worker is while it has more lines than it can send."""

from typing import Final

_ENOUGH_SECONDS: Final = 0.5
_ENOUGH_LINES: Final = 2_000
_NEW_WEIGHT: Final = 0.3


class Speed:
    """Lines per second of a saturated worker, as a running mean.

    Only time in which untried lines waited counts: the rest measures the lack of work, and a worker that asks for
    little because it was given little would never learn better. Times are seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        self.lines_per_second: float | None = None
        """None until enough was seen."""
        self._since: float | None = None
        self._lines_then = 0
        self._seconds = 0.0
        self._lines = 0

    def saturated(self, now: float, finished_lines: int) -> None:
        """Note that untried lines wait, from ``now`` on at the latest."""
        if self._since is None:
            self._since, self._lines_then = now, finished_lines

    def ran_dry(self, now: float, finished_lines: int) -> None:
        """Note that no untried line waits any more."""
        if self._since is not None:
            self._seconds += now - self._since
            self._lines += finished_lines - self._lines_then
            self._since = None

    def measure(self, now: float, finished_lines: int) -> bool:
        """Fold what was seen into the mean when it is enough; returns whether something was learnt."""
        if self._since is not None:
            self.ran_dry(now, finished_lines)
            self._since, self._lines_then = now, finished_lines
        if self._lines == 0 or (self._seconds < _ENOUGH_SECONDS and self._lines < _ENOUGH_LINES):
            return False
        measured = self._lines / max(self._seconds, 1e-6)
        known = self.lines_per_second
        self.lines_per_second = measured if known is None else known + (measured - known) * _NEW_WEIGHT
        self._seconds, self._lines = 0.0, 0
        return True
