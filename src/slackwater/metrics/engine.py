"""Engine time: how long an engine had work, and how long it was kept hungry or drowned meanwhile."""

from typing import Final

from slackwater.metrics.observers import ModelObserver


class EngineMeter:
    """Charges the time between two looks to what the first of them saw.

    Call :meth:`observe` when something changes, or every so often: the figures are as fine as the calls. A look costs
    up to five microseconds. Never call it with a clock that goes back.
    """

    def __init__(self, model: ModelObserver, *, slots: int, surplus: int, gpus: int, now: float) -> None:
        """Start measuring an idle engine at ``now``, in monotonic seconds.

        ``slots`` is what the engine runs at once, ``surplus`` what may wait in its own queue by design, ``gpus`` how
        many it holds (0 counts as 1: a CPU engine is one device).
        """
        self._model = model
        self._slots: Final = slots
        self._most: Final = slots + surplus
        self._devices: Final = max(1, gpus)
        self._since = now
        self._in_flight = 0
        self._lines_waiting = False
        model.slots.set(slots)
        model.in_flight.set(0)

    def observe(self, now: float, *, in_flight: int, lines_waiting: bool) -> None:
        """Note the requests in flight and whether lines at hand wait for a slot, as of ``now``."""
        elapsed = now - self._since
        if elapsed > 0:
            self._charge(elapsed)
        self._since = now
        self._in_flight = in_flight
        self._lines_waiting = lines_waiting
        self._model.in_flight.set(in_flight)

    def _charge(self, elapsed: float) -> None:
        if not self._in_flight and not self._lines_waiting:
            return
        self._model.engine_seconds.inc(elapsed)
        self._model.gpu_seconds.inc(elapsed * self._devices)
        if self._lines_waiting and self._in_flight < self._slots:
            self._model.starved_seconds.inc(elapsed)
        elif self._in_flight > self._most:
            self._model.flooded_seconds.inc(elapsed)
