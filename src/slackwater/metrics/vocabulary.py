"""The closed lists of label values. A label that could take any other value does not belong in a metric."""

from typing import Final, Literal

Stage = Literal["intake", "plan", "schedule", "work", "finish", "deliver", "sweep"]
StageOutcome = Literal["done", "idle", "rejected", "lost", "error"]
LineOutcome = Literal["succeeded", "errored", "cancelled", "expired"]
TokenKind = Literal["uncached_input", "cached_input", "output"]
RetryReason = Literal["rate_limited", "server_error", "timeout", "unreachable", "malformed"]
LeaseOutcome = Literal["granted", "committed", "released", "lost"]
EngineOutage = Literal["away", "ill", "hung"]
BatchEnd = Literal["completed", "failed", "expired", "cancelled"]
StoreOperation = Literal["put", "write", "get", "get_range", "read", "size", "join", "delete", "list"]

OPEN_BATCH_STATUSES: Final = ("validating", "in_progress", "finalizing", "cancelling")
CHUNK_STATES: Final = ("pending", "leased", "done")
WORKER_STATES: Final = ("live", "draining", "lost")
HTTP_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"
"""Stands for every value a stranger chose: a route that is none of ours, an invented HTTP method."""
