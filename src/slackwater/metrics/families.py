"""The metrics themselves: names, help texts, labels and buckets, made once per process on one registry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from slackwater.metrics.line_histogram import LineHistogram
from slackwater.metrics.observers import (
    HttpObserver,
    ModelObserver,
    StageObserver,
    StoreObserver,
    StoreOperationMetrics,
)
from slackwater.metrics.queue import QueueCollector
from slackwater.metrics.vocabulary import (
    BatchEnd,
    EngineOutage,
    LeaseOutcome,
    RetryReason,
    Stage,
    StageOutcome,
    StoreOperation,
)

_QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Transactions, ticks, store calls: half a millisecond to half a minute."""
_SLOW: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
"""Stages, generations, uploads: milliseconds to an hour."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """All metrics of one process. Labelled families are reached through the methods, which bind the labels."""

    registry: CollectorRegistry
    clock: Callable[[], float]
    queue: QueueCollector
    http: HttpObserver
    upload_bytes: Counter
    leader: Gauge
    leader_term: Gauge
    leader_tick_seconds: Histogram
    sync_seconds: Histogram
    chunk_commit_seconds: Histogram
    chunk_checkpoint_seconds: Histogram
    event_loop_lag_seconds: Histogram
    stage_seconds: Histogram
    stage_units: Counter
    plan_rejected_lines: Counter
    batches_ended: Counter
    lines: Counter
    tokens: Counter
    line_retries: Counter
    leases: Counter
    engine_up: Gauge
    engine_slots: Gauge
    engine_in_flight: Gauge
    engine_request_seconds: LineHistogram
    engine_seconds: Counter
    gpu_seconds: Counter
    engine_starved_seconds: Counter
    engine_flooded_seconds: Counter
    engine_restarts: Counter
    engine_outages: Counter
    store_seconds: Histogram
    store_bytes: Counter
    store_errors: Counter

    def stage(self, stage: Stage) -> StageObserver:
        """Bind one stage; every outcome shows as zero from then on."""
        units: dict[StageOutcome, Counter] = {
            outcome: self.stage_units.labels(stage, outcome) for outcome in get_args(StageOutcome)
        }
        return StageObserver(seconds=self.stage_seconds.labels(stage), units=units, clock=self.clock)

    def model(self, model: str) -> ModelObserver:
        """Bind one model; everything of it shows as zero from then on.

        ``model`` is a name that an operator or a worker gave, never one out of a customer's request.
        """
        return ModelObserver(
            succeeded=self.lines.labels(model, "succeeded"),
            errored=self.lines.labels(model, "errored"),
            cancelled=self.lines.labels(model, "cancelled"),
            expired=self.lines.labels(model, "expired"),
            uncached_input_tokens=self.tokens.labels(model, "uncached_input"),
            cached_input_tokens=self.tokens.labels(model, "cached_input"),
            output_tokens=self.tokens.labels(model, "output"),
            up=self.engine_up.labels(model),
            slots=self.engine_slots.labels(model),
            in_flight=self.engine_in_flight.labels(model),
            request_seconds=self.engine_request_seconds.labels(model),
            engine_seconds=self.engine_seconds.labels(model),
            gpu_seconds=self.gpu_seconds.labels(model),
            starved_seconds=self.engine_starved_seconds.labels(model),
            flooded_seconds=self.engine_flooded_seconds.labels(model),
            restarts=self.engine_restarts.labels(model),
            outages={cause: self.engine_outages.labels(model, cause) for cause in get_args(EngineOutage)},
        )

    def store(self) -> StoreObserver:
        """Bind all operations of the object store; each shows as zero from then on."""
        return StoreObserver(
            operations={
                operation: StoreOperationMetrics(
                    seconds=self.store_seconds.labels(operation),
                    bytes_moved=self.store_bytes.labels(operation),
                    errors=self.store_errors.labels(operation),
                )
                for operation in get_args(StoreOperation)
            }
        )

    def lease(self, outcome: LeaseOutcome) -> Counter:
        """Bind the counter of leases that ended, or began, so."""
        return self.leases.labels(outcome)

    def retry(self, reason: RetryReason) -> Counter:
        """Bind the counter of requests sent again for this reason."""
        return self.line_retries.labels(reason)

    def batch_end(self, status: BatchEnd) -> Counter:
        """Bind the counter of batches that ended in this status."""
        return self.batches_ended.labels(status)


def create_metrics(registry: CollectorRegistry, *, version: str, clock: Callable[[], float]) -> Metrics:
    """Make every metric on ``registry``, which must be new; ``clock`` is monotonic seconds (``time.perf_counter``).

    Turns off the client library's ``_created`` series, process-wide: they double what is scraped and say nothing here.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left this one function unannotated
    ProcessCollector(registry=registry)

    def counter(name: str, text: str, *labels: str) -> Counter:
        return Counter(f"slackwater_{name}", text, labels, registry=registry)

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"slackwater_{name}", text, labels, registry=registry)

    def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _QUICK) -> Histogram:
        return Histogram(f"slackwater_{name}", text, labels, buckets=buckets, registry=registry)

    gauge("build_info", "Always 1; the version of the service.", "version").labels(version).set(1)
    queue = QueueCollector()
    registry.register(queue)
    metrics = Metrics(
        registry=registry,
        clock=clock,
        queue=queue,
        http=HttpObserver(
            requests=counter("http_requests_total", "Requests answered.", "method", "route", "status"),
            seconds=histogram("http_request_seconds", "From head to end of the answer.", "route", buckets=_SLOW),
        ),
        upload_bytes=counter("upload_bytes_total", "Bytes of customers' files received."),
        leader=gauge("leader", "1 in the process that leads."),
        leader_term=gauge("leader_term", "The newest term this process knows of."),
        leader_tick_seconds=histogram("leader_tick_seconds", "One tick of the leader."),
        sync_seconds=histogram("sync_seconds", "One exchange of a worker with the database."),
        chunk_commit_seconds=histogram("chunk_commit_seconds", "From the last line of a chunk to its commit."),
        chunk_checkpoint_seconds=histogram("chunk_checkpoint_seconds", "One checkpoint of a chunk that goes on."),
        event_loop_lag_seconds=histogram("event_loop_lag_seconds", "How late the event loop woke a sleeper."),
        stage_seconds=histogram("stage_seconds", "One unit of a stage's work.", "stage", buckets=_SLOW),
        stage_units=counter("stage_units_total", "Units of work a stage took up.", "stage", "outcome"),
        plan_rejected_lines=counter("plan_rejected_lines_total", "Input lines refused while planning.", "code"),
        batches_ended=counter("batches_ended_total", "Batches that reached a final status.", "status"),
        lines=counter("lines_total", "Lines whose result was committed.", "model", "outcome"),
        tokens=counter("tokens_total", "Tokens of committed succeeded lines; kinds are disjoint.", "model", "kind"),
        line_retries=counter("line_retries_total", "Requests sent to the engine again.", "reason"),
        leases=counter("leases_total", "Leases of chunks.", "outcome"),
        engine_up=gauge("engine_up", "1 while the engine takes requests.", "model"),
        engine_slots=gauge("engine_slots", "Requests the engine runs at once.", "model"),
        engine_in_flight=gauge("engine_in_flight", "Requests sent and not answered yet.", "model"),
        engine_request_seconds=LineHistogram(
            "slackwater_engine_request_seconds",
            "From sending a request to its whole answer.",
            "model",
            buckets=_SLOW,
            registry=registry,
        ),
        engine_seconds=counter("engine_seconds_total", "Seconds in which the engine had work.", "model"),
        gpu_seconds=counter("gpu_seconds_total", "The engine's seconds times its GPUs.", "model"),
        engine_starved_seconds=counter(
            "engine_starved_seconds_total", "Seconds with empty slots although lines waited.", "model"
        ),
        engine_flooded_seconds=counter(
            "engine_flooded_seconds_total", "Seconds with more in flight than slots and surplus.", "model"
        ),
        engine_restarts=counter("engine_restarts_total", "Times a supervised engine was started again.", "model"),
        engine_outages=counter("engine_outages_total", "Times an engine was found down.", "model", "cause"),
        store_seconds=histogram("store_seconds", "One call to the object store.", "operation"),
        store_bytes=counter("store_bytes_total", "Bytes moved by calls to the object store.", "operation"),
        store_errors=counter("store_errors_total", "Calls to the object store that failed.", "operation"),
    )
    _show_zeros(metrics)
    return metrics


def _show_zeros(metrics: Metrics) -> None:
    """Make the series of closed lists now: ``increase()`` does not see the step from no series to one."""
    for outcome in get_args(LeaseOutcome):
        metrics.lease(outcome)
    for reason in get_args(RetryReason):
        metrics.retry(reason)
    for status in get_args(BatchEnd):
        metrics.batch_end(status)
