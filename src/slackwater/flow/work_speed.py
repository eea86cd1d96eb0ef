"""How fast a worker is, measured while it is busy."""

from typing import Final

_WINDOW_SECONDS: Final = 0.5
_NEW_WEIGHT: Final = 0.3


class Speed:
    """Lines per second, as a running mean over windows in which the engine was fed without a break.

    Times are seconds of one monotonic clock. A window that saw the feeder run dry teaches nothing: it would measure
    the lack of work.
    """

    def __init__(self, now: float) -> None:
        self._since = now
        self._lines = 0
        self.lines_per_second: float | None = None
        """None until the first window has ended."""

    def interrupted(self, now: float, finished_lines: int) -> None:
        """Begin a new window: the feeder ran dry."""
        self._since, self._lines = now, finished_lines

    def measure(self, now: float, finished_lines: int) -> bool:
        """Close the window when it is long enough; returns whether something was learnt."""
        seconds = now - self._since
        lines = finished_lines - self._lines
        if seconds < _WINDOW_SECONDS or lines == 0:
            return False
        measured = lines / seconds
        known = self.lines_per_second
        self.lines_per_second = measured if known is None else known + (measured - known) * _NEW_WEIGHT
        self._since, self._lines = now, finished_lines
        return True
