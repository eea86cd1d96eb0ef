"""The queue: claims, leases, commits and ends of batches. It crosses tenants, so only ``flow`` may import it.

The statements stand in ``queue.sql``; the modules beside it give them types: ``planning``, ``leases``, ``finishing``,
``sweeping``.
"""

from slackwater.db.queue.planning import (
    KnownModel,
    PlanClaim,
    PlannedChunk,
    RefusedLines,
    claim_planning,
    fail_planning,
    known_models,
    publish_plan,
    renew_claim,
)

__all__ = [
    "KnownModel",
    "PlanClaim",
    "PlannedChunk",
    "RefusedLines",
    "claim_planning",
    "fail_planning",
    "known_models",
    "publish_plan",
    "renew_claim",
]
