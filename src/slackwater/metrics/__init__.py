"""Every number the service shows Prometheus: docs/metrics.md is the list, a test holds the two together.

A process makes one :class:`Metrics` on a registry of its own (``create_metrics``) and hands it down. Hot paths never
look labels up: they hold an observer (``metrics.stage("plan")``, ``metrics.model(name)``) whose labels were bound once.
The state of the queue is not counted along: :class:`QueueView` is one read of the database, shown as it is.
"""

from slackwater.metrics.engine import EngineMeter
from slackwater.metrics.families import Metrics, create_metrics
from slackwater.metrics.observers import HttpObserver, ModelObserver, StageObserver, StageUnit, StoreObserver
from slackwater.metrics.queue import QueueView
from slackwater.metrics.vocabulary import (
    BatchEnd,
    EngineOutage,
    LeaseOutcome,
    LineOutcome,
    RetryReason,
    Stage,
    StageOutcome,
    StoreOperation,
    TokenKind,
)

__all__ = [
    "BatchEnd",
    "EngineMeter",
    "EngineOutage",
    "HttpObserver",
    "LeaseOutcome",
    "LineOutcome",
    "Metrics",
    "ModelObserver",
    "QueueView",
    "RetryReason",
    "Stage",
    "StageObserver",
    "StageOutcome",
    "StageUnit",
    "StoreObserver",
    "StoreOperation",
    "TokenKind",
    "create_metrics",
]
