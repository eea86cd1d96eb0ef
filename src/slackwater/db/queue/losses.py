"""Results that were lost after their commit: what becomes of their chunks, their counts and their charge."""

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.db.queue.finishing import FinishClaim, UnrunChunk, unrun_of
from slackwater.db.queue.leases import ChunkResult, result_params
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.domain.usage import Usage

MOST_LOSSES = 2
"""How often a chunk whose results were lost runs again: a store that keeps losing them must not cost for ever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LostChunk:
    """A committed chunk of which a result object is lost, and what its commit counted and charged."""

    chunk: UnrunChunk
    succeeded: int
    errored: int
    cancelled: int
    expired: int
    usage: Usage


async def lost_chunks(db: Database, claim: FinishClaim, seqs: Sequence[int]) -> list[LostChunk]:
    """Return what is known of these chunks."""
    rows = await db.fetch("finish.lost", SQL["lost_chunks"], {"batch_id": claim.batch_id, "seqs": list(seqs)})
    return [
        LostChunk(
            chunk=unrun_of(row),
            succeeded=row.succeeded,
            errored=row.errored,
            cancelled=row.cancelled,
            expired=row.expired,
            usage=Usage(row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens),
        )
        for row in rows
    ]


async def rerun_lost(db: Database, claim: FinishClaim, seqs: Sequence[int]) -> int:
    """Take these commits back and let the batch go on; returns how many.

    0, and nothing changed, where the batch may not run any more, or each of the chunks was lost too often.
    """
    params = {
        "batch_id": claim.batch_id,
        "claim_token": claim.claim_token,
        "seqs": list(seqs),
        "most_losses": MOST_LOSSES,
    }
    return len(await db.fetch("finish.rerun", SQL["rerun_lost"], params))


async def replace_result(db: Database, claim: FinishClaim, seq: int, result: ChunkResult) -> bool:
    """Give a committed chunk other results, and its batch and the ledger what they count; False on a lost claim."""
    params = {
        "batch_id": claim.batch_id,
        "claim_token": claim.claim_token,
        "seq": seq,
        **result_params(result),
    }
    return bool(await db.fetch("finish.replace", SQL["replace_result"], params))
