from datetime import UTC, datetime

import pytest

from slackwater.metrics import Metrics, QueueView
from tests.metrics_samples import MODEL, new_metrics, queue_view

_NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
_EMPTY = QueueView(
    read_at=_NOON, lines_waiting={}, model_workers={}, next_deadlines={}, batches={}, chunks={}, workers={}
)


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"slackwater_{name}", labels)


def test_a_process_that_never_looked_shows_no_queue() -> None:
    metrics = new_metrics()

    assert _value(metrics, "batches", status="in_progress") is None
    assert _value(metrics, "queue_view_timestamp_seconds") is None


def test_demand_shows_per_model_with_no_worker_alive() -> None:
    metrics = new_metrics()

    metrics.queue.replace(
        QueueView(
            read_at=_NOON,
            lines_waiting={MODEL: 41},
            model_workers={},
            next_deadlines={MODEL: _NOON},
            batches={"in_progress": 1},
            chunks={"pending": 2},
            workers={},
        )
    )

    assert _value(metrics, "lines_waiting", model=MODEL) == 41
    assert _value(metrics, "model_workers", model=MODEL) == 0
    assert _value(metrics, "next_deadline_timestamp_seconds", model=MODEL) == _NOON.timestamp()
    assert _value(metrics, "workers", state="live") == 0


def test_a_drained_queue_shows_zero_not_its_last_value() -> None:
    metrics = new_metrics()
    metrics.queue.replace(queue_view(_NOON))

    metrics.queue.replace(_EMPTY)

    for status in ("validating", "in_progress", "finalizing", "cancelling"):
        assert _value(metrics, "batches", status=status) == 0
    for state in ("pending", "leased", "done"):
        assert _value(metrics, "chunks", state=state) == 0
    assert _value(metrics, "queue_view_timestamp_seconds") == _NOON.timestamp()


def test_a_model_that_is_gone_leaves_no_series_behind() -> None:
    metrics = new_metrics()
    metrics.queue.replace(queue_view(_NOON))

    metrics.queue.replace(_EMPTY)

    assert _value(metrics, "lines_waiting", model=MODEL) is None
    assert _value(metrics, "next_deadline_timestamp_seconds", model=MODEL) is None


def test_the_same_view_shown_twice_counts_once() -> None:
    metrics = new_metrics()

    metrics.queue.replace(queue_view(_NOON))
    metrics.queue.replace(queue_view(_NOON))

    assert _value(metrics, "lines_waiting", model=MODEL) == 7


@pytest.mark.parametrize("state", ["live", "draining", "lost"])
def test_a_process_that_stopped_looking_shows_nothing_again(state: str) -> None:
    metrics = new_metrics()
    metrics.queue.replace(queue_view(_NOON))

    metrics.queue.replace(None)

    assert _value(metrics, "workers", state=state) is None
