"""The gauges of the queue: read from the database before each scrape, never counted along."""

from slackwater.db.queue.view import queue_view
from slackwater.db.session import Database
from slackwater.metrics import Metrics


async def show_queue(db: Database, metrics: Metrics) -> None:
    """Bring the queue's gauges up to date. Raises DatabaseUnavailable; the older view stays then."""
    metrics.queue.replace(await queue_view(db))
