"""The state of the queue, for the gauges: read whole, never counted along."""

from collections import defaultdict
from datetime import UTC, datetime

from slackwater.db.queue.planning import LEASE_SECONDS
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.metrics import QueueView


async def queue_view(db: Database) -> QueueView:
    """Read what waits and what runs, at one instant."""
    gauges: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in await db.fetch("view", SQL["queue_view"], {"lease_seconds": LEASE_SECONDS}):
        gauges[row.gauge][row.label] = float(row.value)
    return QueueView(
        read_at=_instant(gauges["read_at"][""]),
        lines_waiting=_whole(gauges["lines_waiting"]),
        model_workers=_whole(gauges["model_workers"]),
        next_deadlines={model: _instant(seconds) for model, seconds in gauges["next_deadline"].items()},
        batches=_whole(gauges["batches"]),
        chunks=_whole(gauges["chunks"]),
        workers=_whole(gauges["workers"]),
    )


def _whole(gauge: dict[str, float]) -> dict[str, int]:
    """Counts are whole numbers."""
    return {label: int(value) for label, value in gauge.items()}


def _instant(epoch_seconds: float) -> datetime:
    """An aware time from seconds since the epoch."""
    return datetime.fromtimestamp(epoch_seconds, tz=UTC)
