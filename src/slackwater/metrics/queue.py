"""The queue as Prometheus sees it: one read of the database, swapped in whole.

Counting along (up when queued, down when done) drifts with every crash, and a gauge once set for a model that is gone
stays for ever. So nothing here is incremented: the collector renders the newest view and forgets the one before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from slackwater.metrics.vocabulary import CHUNK_STATES, OPEN_BATCH_STATUSES, WORKER_STATES


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueView:
    """What was in the database at one instant. A state or status left out counts as zero."""

    read_at: datetime
    """The database's clock when it was read, aware."""
    lines_waiting: Mapping[str, int]
    """Lines without a committed result by model: every known model, those with nothing waiting included."""
    model_workers: Mapping[str, int]
    """Live workers by model."""
    next_deadlines: Mapping[str, datetime]
    """Earliest deadline by model, only of models with lines waiting."""
    batches: Mapping[str, int]
    """Batches not ended yet by status."""
    chunks: Mapping[str, int]
    """Chunks of unfinished batches by state."""
    workers: Mapping[str, int]
    """Workers by state: live, draining, lost."""


class QueueCollector(Collector):
    """Shows the newest view; nothing at all before the first one."""

    def __init__(self) -> None:
        self._view: QueueView | None = None

    def replace(self, view: QueueView | None) -> None:
        """Show this view from now on; None shows nothing, for a process that stopped looking."""
        self._view = view

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name the families without reading anything (the registry asks at registration)."""
        return _families().values()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Render the view as gauges."""
        view = self._view
        if view is None:
            return
        families = _families()
        models = sorted(view.lines_waiting.keys() | view.model_workers.keys())
        for model in models:
            families["lines_waiting"].add_metric([model], view.lines_waiting.get(model, 0))
            families["model_workers"].add_metric([model], view.model_workers.get(model, 0))
        for model, deadline in view.next_deadlines.items():
            families["next_deadline_timestamp_seconds"].add_metric([model], deadline.timestamp())
        for name, states, counts in (
            ("batches", OPEN_BATCH_STATUSES, view.batches),
            ("chunks", CHUNK_STATES, view.chunks),
            ("workers", WORKER_STATES, view.workers),
        ):
            for state, count in (dict.fromkeys(states, 0) | dict(counts)).items():
                families[name].add_metric([state], count)
        families["queue_view_timestamp_seconds"].add_metric([], view.read_at.timestamp())
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    """Make the empty families by short name."""
    described = {
        "lines_waiting": ("Lines of unfinished batches without a committed result.", ["model"]),
        "model_workers": ("Live workers that serve the model.", ["model"]),
        "next_deadline_timestamp_seconds": ("Earliest deadline of the batches with lines waiting.", ["model"]),
        "batches": ("Batches not ended yet.", ["status"]),
        "chunks": ("Chunks of unfinished batches.", ["state"]),
        "workers": ("Workers by state.", ["state"]),
        "queue_view_timestamp_seconds": ("When the queue was last read.", []),
    }
    return {
        name: GaugeMetricFamily(f"slackwater_{name}", text, labels=labels) for name, (text, labels) in described.items()
    }
