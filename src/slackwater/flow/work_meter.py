"""A worker's metrics: the observers of feeding, holding and syncing, with their labels bound once."""

from collections.abc import Callable
from typing import Final

from slackwater.domain.line_errors import LineError
from slackwater.flow.chunk_run import ChunkRun
from slackwater.metrics import EngineMeter, EngineOutage, Metrics, ModelObserver, RetryReason

_REASONS: Final[dict[str | None, RetryReason]] = {
    "request_timeout": "timeout",
    "engine_unreachable": "unreachable",
    "invalid_engine_reply": "malformed",
}
_FULL: Final = frozenset({429, 503, 529})


class WorkMeter:
    """Counts what one worker does. ``model`` is the base model its engine holds; lines count under their own."""

    def __init__(self, metrics: Metrics, *, model: str, slots: int, surplus: int, gpus: int) -> None:
        self._metrics = metrics
        self._clock: Callable[[], float] = metrics.clock
        self._base = metrics.model(model)
        self._models: dict[str, ModelObserver] = {model: self._base}
        self._engine = EngineMeter(self._base, slots=slots, surplus=surplus, gpus=gpus, now=metrics.clock())
        self._commit_seconds = metrics.chunk_commit_seconds
        self._committed = metrics.lease("committed")
        self._released = metrics.lease("released")
        self._stage = metrics.stage("work")
        self.synced: Final = metrics.sync_seconds.observe
        """One exchange with the database took so many seconds."""
        self.checkpointed: Final = metrics.chunk_checkpoint_seconds.observe
        """What is finished of a chunk was kept within so many seconds."""
        self.answered: Final = self._base.request_seconds.observe
        """One request was answered, or not, after so many seconds."""

    def retried(self, error: LineError) -> None:
        """Count one line that waits for another try."""
        reason = _REASONS.get(error.code, "rate_limited" if error.status in _FULL else "server_error")
        self._metrics.retry(reason).inc()

    def committed(self, run: ChunkRun, seconds: float) -> None:
        """Count a commit that stands, its lines and its tokens."""
        model = self._models.get(run.lease.model)
        if model is None:
            model = self._models[run.lease.model] = self._metrics.model(run.lease.model)
        model.lines_committed(
            succeeded=run.succeeded, errored=run.errored, cancelled=run.cancelled, expired=run.expired
        )
        model.tokens_committed(
            input_tokens=run.usage.input_tokens,
            cached_input_tokens=run.usage.cached_tokens,
            output_tokens=run.usage.output_tokens,
        )
        self._commit_seconds.observe(seconds)
        self._committed.inc()
        self._stage.count("done", seconds=self._clock() - run.started_at)

    def refused(self, run: ChunkRun) -> None:
        """Count work that was done for nothing: whoever took the lease away has counted the lease."""
        self._stage.count("lost", seconds=self._clock() - run.started_at)

    def released(self) -> None:
        """Count a lease that was given back."""
        self._released.inc()

    def outage(self, outage: EngineOutage) -> None:
        """Count one time that the engine was found down."""
        self._base.outages[outage].inc()

    def load(self, *, in_flight: int, lines_waiting: bool, engine_up: bool) -> None:
        """Note how full the engine is, and whether it takes requests."""
        self._base.up.set(engine_up)
        self._engine.observe(self._clock(), in_flight=in_flight, lines_waiting=lines_waiting)
