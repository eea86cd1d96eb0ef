"""Closes the chunks of a stopped batch that a worker had begun: what their checkpoints kept is committed."""

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.finishing import FinishClaim, lease_to_close
from slackwater.db.session import Database
from slackwater.domain.errors import LeaseLost
from slackwater.flow.chunk_commit import commit_run
from slackwater.flow.chunk_open import open_to_close


async def close_begun_chunks(db: Database, store: BlobStore, claim: FinishClaim) -> None:
    """Commit what is kept of each, and the rest of its lines as cancelled or expired; one chunk is in memory at a time.

    Raises LeaseLost when the claim is, Unavailable.
    """
    for lease in await lease_to_close(db, claim):
        run = await open_to_close(db, store, lease)
        run.close_unrun(claim.ending)
        if not await commit_run(db, store, run, still_held=lambda: False):
            raise LeaseLost(f"{claim.batch_id} is assembled by another process")
