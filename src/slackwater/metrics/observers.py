"""Metrics with their labels bound, for the places that count: one lookup when made, none per event."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from prometheus_client import Counter, Gauge, Histogram

from slackwater.domain.errors import LeaseLost
from slackwater.metrics.line_histogram import LineSeries
from slackwater.metrics.vocabulary import HTTP_METHODS, OTHER, EngineOutage, StageOutcome


class StageUnit:
    """One unit of work under way, as a context manager. Set ``outcome`` where it does not end as ``done``.

    Whatever ``outcome`` says, a lost lease ends a unit as ``lost`` and any other error as ``error``; the exception
    passes on. A cancelled unit is not counted: it ended with the process, not by itself.
    """

    __slots__ = ("_observer", "_started", "outcome")

    def __init__(self, observer: "StageObserver") -> None:
        """Prepare a unit; its time runs from entering the block."""
        self._observer = observer
        self._started = 0.0
        self.outcome: StageOutcome = "done"

    def __enter__(self) -> Self:
        self._started = self._observer.clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if not issubclass(kind, Exception):
                return
            self.outcome = "lost" if issubclass(kind, LeaseLost) else "error"
        self._observer.count(self.outcome, seconds=self._observer.clock() - self._started)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageObserver:
    """Counts and times the units of one stage."""

    seconds: Histogram
    units: Mapping[StageOutcome, Counter]
    clock: Callable[[], float]
    """Seconds from any fixed point, never going back."""

    def unit(self) -> StageUnit:
        """Begin one unit: ``with stage.unit() as unit: …``. Costs some microseconds: for units, not for lines."""
        return StageUnit(self)

    def count(self, outcome: StageOutcome, *, seconds: float) -> None:
        """Count one unit that took so long. ``idle`` ones are not timed: they would drown the rest."""
        self.units[outcome].inc()
        if outcome != "idle":
            self.seconds.observe(seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelObserver:
    """Everything counted per model, bound to one model."""

    succeeded: Counter
    errored: Counter
    cancelled: Counter
    expired: Counter
    uncached_input_tokens: Counter
    cached_input_tokens: Counter
    output_tokens: Counter
    up: Gauge
    slots: Gauge
    in_flight: Gauge
    request_seconds: LineSeries
    engine_seconds: Counter
    gpu_seconds: Counter
    starved_seconds: Counter
    flooded_seconds: Counter
    restarts: Counter
    outages: Mapping[EngineOutage, Counter]

    def lines_committed(self, *, succeeded: int = 0, errored: int = 0, cancelled: int = 0, expired: int = 0) -> None:
        """Count the lines of one commit, after its transaction."""
        self.succeeded.inc(succeeded)
        self.errored.inc(errored)
        self.cancelled.inc(cancelled)
        self.expired.inc(expired)

    def tokens_committed(self, *, input_tokens: int, cached_input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of one commit's succeeded lines; the input includes its cached part, as engines report it.

        An engine that reports more cached than input is taken at its input: counters never go down.
        """
        cached = min(cached_input_tokens, input_tokens)
        self.uncached_input_tokens.inc(input_tokens - cached)
        self.cached_input_tokens.inc(cached)
        self.output_tokens.inc(output_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreOperationMetrics:
    """The metrics of one operation of the object store."""

    seconds: Histogram
    bytes_moved: Counter
    errors: Counter


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreObserver:
    """Takes note of every call to the object store; it is what ``blobs`` calls an observer."""

    operations: Mapping[str, StoreOperationMetrics]

    def observed(self, op: str, seconds: float, size_bytes: int, *, ok: bool) -> None:
        """Count and time one finished call. ``op`` is one of the operations, else KeyError."""
        operation = self.operations[op]
        operation.seconds.observe(seconds)
        operation.bytes_moved.inc(size_bytes)
        if not ok:
            operation.errors.inc()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpObserver:
    """Counts and times answered requests. Labels are looked up per request: a request costs far more than that."""

    requests: Counter
    seconds: Histogram

    def answered(self, *, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count one answer. ``route`` is the template that matched, None where none did: never the path itself."""
        known_method = method if method in HTTP_METHODS else OTHER
        known_route = route or OTHER
        self.requests.labels(known_method, known_route, str(status)).inc()
        self.seconds.labels(known_route).observe(seconds)
