"""What the parts of a worker tell to whoever counts: the metrics (``work_meter``), or a test."""

from typing import Protocol

from slackwater.domain.line_errors import LineError
from slackwater.flow.chunk_run import ChunkRun
from slackwater.metrics import EngineOutage


class FeedObserver(Protocol):
    """Told how lines fare."""

    def answered(self, seconds: float) -> None:
        """One request was answered, or not, after so long."""
        ...

    def retried(self, error: LineError) -> None:
        """One line waits for another try, because of this."""
        ...


class HoldingsObserver(Protocol):
    """Told how leases end."""

    def committed(self, run: ChunkRun, seconds: float) -> None:
        """A chunk's results stand; ``seconds`` is what the commit itself took."""
        ...

    def refused(self, run: ChunkRun) -> None:
        """A chunk's lease was taken away while it ran: what was not kept of it is lost."""
        ...

    def released(self) -> None:
        """A lease was given back."""
        ...

    def checkpointed(self, seconds: float) -> None:
        """What is finished of a chunk was kept, in so many seconds; not told where there was nothing new to keep."""
        ...


class EngineObserver(Protocol):
    """Told how the engine fares."""

    def outage(self, outage: EngineOutage) -> None:
        """The engine takes no requests from here on, for this reason."""
        ...


class WorkObserver(FeedObserver, HoldingsObserver, EngineObserver, Protocol):
    """Told what the metrics of a worker need."""

    def synced(self, seconds: float) -> None:
        """One exchange with the database took so long."""
        ...

    def load(self, *, in_flight: int, lines_waiting: bool, engine_up: bool) -> None:
        """How full the engine is now, whether lines wait for a slot of it, and whether it takes any."""
        ...
