"""One value of everything: what a busy process would show, for tests of the list, of the dashboard and of the rules."""

from datetime import UTC, datetime
from typing import get_args

from prometheus_client import CollectorRegistry

from slackwater.metrics import (
    BatchEnd,
    EngineMeter,
    LeaseOutcome,
    Metrics,
    QueueView,
    RetryReason,
    Stage,
    StageOutcome,
    StoreOperation,
    create_metrics,
)

MODEL = "tiny-llama"


def new_metrics() -> Metrics:
    """Make metrics on a registry of their own, with a clock that stands still."""
    return create_metrics(CollectorRegistry(), version="0.0.0", clock=lambda: 0.0)


def queue_view(read_at: datetime, *, lines_waiting: int = 7) -> QueueView:
    """A queue with something in every place."""
    return QueueView(
        read_at=read_at,
        lines_waiting={MODEL: lines_waiting, "idle-model": 0},
        model_workers={MODEL: 2},
        next_deadlines={MODEL: datetime(2030, 1, 1, tzinfo=UTC)},
        batches={"in_progress": 3, "validating": 1},
        chunks={"pending": 5, "leased": 2, "done": 11},
        workers={"live": 2},
    )


def move_everything(metrics: Metrics, *, now: float, read_at: datetime) -> None:
    """Move every metric a little, as one second of traffic at ``now`` (monotonic seconds) would."""
    metrics.queue.replace(queue_view(read_at))
    _move_stages(metrics)
    _move_engine(metrics, now)
    for histogram in (
        metrics.leader_tick_seconds,
        metrics.sync_seconds,
        metrics.chunk_commit_seconds,
        metrics.chunk_checkpoint_seconds,
        metrics.event_loop_lag_seconds,
    ):
        histogram.observe(0.012)
    metrics.leader.set(1)
    metrics.leader_term.set(4)
    metrics.upload_bytes.inc(1_000_000)
    for status in (200, 404, 503):
        metrics.http.answered(method="GET", route="/v1/batches/{batch_id}", status=status, seconds=0.004)
    store = metrics.store()
    for operation in get_args(StoreOperation):
        store.observed(operation, 0.02, 4096, ok=False)


def _move_stages(metrics: Metrics) -> None:
    for stage in get_args(Stage):
        observer = metrics.stage(stage)
        for outcome in get_args(StageOutcome):
            observer.count(outcome, seconds=0.2)
    for lease in get_args(LeaseOutcome):
        metrics.lease(lease).inc()
    for reason in get_args(RetryReason):
        metrics.retry(reason).inc()
    for status in get_args(BatchEnd):
        metrics.batch_end(status).inc()
    metrics.plan_rejected_lines.labels("invalid_json_line").inc()


def _move_engine(metrics: Metrics, now: float) -> None:
    model = metrics.model(MODEL)
    model.lines_committed(succeeded=90, errored=5, cancelled=3, expired=2)
    model.tokens_committed(input_tokens=9000, cached_input_tokens=4000, output_tokens=3000)
    model.request_seconds.observe(0.7)
    model.restarts.inc()
    model.up.set(1)
    meter = EngineMeter(model, slots=256, surplus=32, gpus=1, now=now - 1)
    meter.observe(now - 1, in_flight=250, lines_waiting=True)
    meter.observe(now - 0.6, in_flight=300, lines_waiting=True)
    meter.observe(now - 0.5, in_flight=256, lines_waiting=True)
    meter.observe(now, in_flight=256, lines_waiting=True)
