"""Plan: check a batch's input, put it in order, cut it into chunks.

One pass over the input checks every line and keeps a copy and the lines' keys on scratch; the keys are sorted; a second
pass writes the plan object, unless sorting would gain nothing. All of it belongs to one claim. A planner that dies, or
whose claim is lost, leaves objects that no row names and nothing else: whoever claims the batch next starts over, and
nothing is visible before the one transaction that publishes the plan.

``plan_scan`` is the first pass, ``plan_sort`` the order, ``plan_probe`` the first chunk, ``plan_layout`` the places,
``plan_write`` the objects, ``plan_scratch`` the files they share.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.planning import (
    PlanClaim,
    claim_planning,
    fail_planning,
    known_models,
    publish_plan,
    renew_claim,
)
from slackwater.db.session import Database
from slackwater.domain.bodies import BodyRules
from slackwater.domain.cutting import CutRules
from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.errors import LeaseLost, ObjectDamaged, ObjectMissing
from slackwater.domain.input_errors import InputError
from slackwater.domain.limits import InputLimits
from slackwater.domain.results import OpenAIDialect, line_id_prefix
from slackwater.domain.scan import InputScan
from slackwater.flow.claims import MOST_CLAIMS, ClaimReturns
from slackwater.flow.plan_build import PlanBuilder
from slackwater.flow.plan_scan import PlanObserver, input_errors, read_input
from slackwater.flow.plan_scratch import PlanScratch

_LOG: Final = structlog.get_logger("slackwater.plan")
_GIVEN_UP: Final = InputError(
    code="planning_failed",
    message=f"The input could not be read to its end in {MOST_CLAIMS} tries. If a new batch ends so, too, tell whoever"
    " runs this service.",
    param="input_file_id",
)
_INPUT_DAMAGED: Final = InputError(
    code="input_damaged",
    message="The input file in the object store is not what was uploaded. Upload it again and create a new batch.",
    param="input_file_id",
)
_INPUT_GONE: Final = InputError(
    code="input_unavailable",
    message="The input file is no longer there. Upload it again and create a new batch.",
    param="input_file_id",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSettings:
    """How planning works here."""

    scratch: Path
    """A folder on a disk with room for one copy of the largest input."""
    limits: InputLimits = field(default_factory=InputLimits)
    rules: BodyRules = field(default_factory=BodyRules)
    cut: CutRules = field(default_factory=CutRules)
    claim_seconds: float = 60.0
    """How long a planner may be silent before another takes its batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planner:
    """The planning stage of one process."""

    db: Database
    blobs: BlobStore
    settings: PlanSettings
    observer: PlanObserver
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    choose: Callable[[int], int]
    """Chance: a number from 0 up to, but not including, the given one."""
    returns: ClaimReturns

    async def plan_once(self) -> bool:
        """Plan the batch that waits longest; False when none waits.

        Ends with the batch published, or failed with its errors, or with a lost claim and nothing written. Raises
        Unavailable where a part does not answer: the claim is given back, as when cancelled, and the batch is planned
        later.
        """
        await self.returns.settle()
        claim = await claim_planning(self.db, claim_seconds=self.settings.claim_seconds)
        if claim is None:
            return False
        log = _LOG.bind(batch=claim.batch_id)
        async with self.returns.if_broken_off(claim.batch_id, claim.claim_token):
            outcome = await self._try_to_plan(claim)
        if outcome == "lost":
            # Published or not, these names are this claim's alone, and this claim is over.
            await self.blobs.delete(_object_keys(claim), stage="plan.drop")
        log.info("planned", outcome=outcome)
        return True

    async def _try_to_plan(self, claim: PlanClaim) -> str:
        if claim.claims > MOST_CLAIMS:
            return await self._fail(claim, [_GIVEN_UP])
        try:
            return await self._plan(claim)
        except ObjectDamaged:
            return await self._fail(claim, [_INPUT_DAMAGED])
        except ObjectMissing:
            return await self._fail(claim, [_INPUT_GONE])
        except LeaseLost:
            return "lost"

    async def _plan(self, claim: PlanClaim) -> str:
        settings = self.settings
        keep_claim = ClaimKeeper(self.db, claim, seconds=settings.claim_seconds, clock=self.clock)
        limits = settings.limits.lowered(max_lines=claim.max_lines, max_input_bytes=claim.max_input_bytes)
        endpoint = ENDPOINTS.get(claim.endpoint)
        if endpoint is None or claim.input_bytes > limits.max_input_bytes:
            return await self._fail(claim, [_unplannable(claim, limits)])
        models = await known_models(self.db)
        scan = InputScan(
            endpoint=endpoint,
            models=models,
            rules=settings.rules,
            limits=limits,
            dialect=OpenAIDialect(id_prefix=line_id_prefix(claim.batch_id)),
            tolerant=claim.invalid_lines == "error",
        )
        with PlanScratch(settings.scratch) as scratch:
            await read_input(self.blobs, claim, scan, scratch, keep_claim=keep_claim)
            errors = await scratch.off_loop_if_long(lambda: input_errors(scan, scratch, limits, self.observer))
            if errors:
                return await self._fail(claim, errors)
            builder = PlanBuilder(
                claim,
                scan,
                scratch,
                rules=settings.cut,
                known={model.id: model for model in models.values()},
                choose=self.choose,
                limits=limits,
            )
            plan = await builder.build(self.blobs, keep_claim=keep_claim)
        published = await publish_plan(
            self.db,
            claim,
            model=scan.asked_model,
            plan_key=plan.plan_key,
            index_key=plan.index_key,
            chunks=plan.chunks,
            refused=plan.refused,
        )
        return "published" if published else "lost"

    async def _fail(self, claim: PlanClaim, errors: list[InputError]) -> str:
        if not await fail_planning(self.db, claim, errors):
            return "lost"
        self.observer.failed()
        return "failed"


class ClaimKeeper:
    """Keeps a claim alive: call it often; it renews the claim when a third of its time is gone."""

    def __init__(self, db: Database, claim: PlanClaim, *, seconds: float, clock: Callable[[], float]) -> None:
        self._db = db
        self._claim = claim
        self._seconds = seconds
        self._clock = clock
        self._renewed = clock()

    async def __call__(self) -> None:
        """Raise LeaseLost when the claim is another's, or when the batch no longer waits for a plan."""
        now = self._clock()
        if now - self._renewed < self._seconds / 3:
            return
        if not await renew_claim(self._db, self._claim.batch_id, self._claim.claim_token, self._seconds):
            raise LeaseLost("another process plans this batch")
        self._renewed = now


def _unplannable(claim: PlanClaim, limits: InputLimits) -> InputError:
    if claim.endpoint not in ENDPOINTS:
        message = f"Batches for {claim.endpoint} are not supported. Supported are {', '.join(ENDPOINTS)}."
        return InputError(code="invalid_request", message=message, param="endpoint")
    message = f"The file has {claim.input_bytes} bytes; at most {limits.max_input_bytes} are allowed."
    return InputError(code="input_too_large", message=message, param="input_file_id")


def _object_keys(claim: PlanClaim) -> list[str]:
    named = (keys.plan_key, keys.plan_index_key, keys.plan_errors_key)
    return [key(claim.batch_id, claim.claim_token) for key in named]
