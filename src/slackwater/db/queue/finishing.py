"""Claims on batches that wait to be assembled, and their end."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from uuid import UUID

from slackwater.db.queue.leases import Lease, index_of, lease_of
from slackwater.db.queue.results import ResultObject, StoredRange
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.domain.errors import LeaseLost
from slackwater.domain.ids import BatchId, FileId, TenantId


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishClaim:
    """One batch that this process may assemble until the claim lapses."""

    batch_id: BatchId
    tenant_id: TenantId
    dialect: str
    ending: Literal["completed", "expired", "cancelled"]
    """What the batch becomes."""
    total: int
    output_expires_seconds: int | None
    claim_token: UUID
    claims: int
    source_key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedPart:
    """The two result objects of one committed chunk; None where it has no such lines."""

    seq: int
    output: ResultObject | None
    errors: ResultObject | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UnrunChunk:
    """A chunk that no worker will run any more."""

    seq: int
    source_key: str
    byte_start: int
    byte_length: int
    n_requests: int
    crc32: int | None
    index: StoredRange | None
    first_number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultFile:
    """One assembled file, to become a row of ``files``."""

    file_id: FileId
    filename: str
    size_bytes: int
    sha256: str
    object_key: str
    expires_seconds: float


async def expire_batches(db: Database, *, limit: int = 100) -> int:
    """Stop the batches whose window is over; returns how many."""
    return len(await db.fetch("finish.expire", SQL["expire_batches"], {"limit": limit}))


async def claim_finishing(db: Database, *, grace_seconds: float, claim_seconds: float = 60.0) -> FinishClaim | None:
    """Claim the batch that waits longest to be assembled; None when there is none.

    A batch with chunks still leased waits until their workers commit, ``grace_seconds`` at most.
    """
    params = {"grace_seconds": grace_seconds, "claim_seconds": claim_seconds}
    rows = await db.fetch("finish.claim", SQL["claim_finishing"], params)
    if not rows:
        return None
    row = rows[0]
    return FinishClaim(
        batch_id=row.id,
        tenant_id=row.tenant_id,
        dialect=row.dialect,
        ending=row.ending,
        total=row.total,
        output_expires_seconds=row.output_expires_seconds,
        claim_token=row.claim_token,
        claims=row.claims,
        source_key=row.source_key,
    )


async def revoke_leases(db: Database, batch_id: BatchId) -> int:
    """End the leases that outlasted the grace; their workers' commits are refused from now on."""
    return len(await db.fetch("finish.revoke", SQL["revoke_leases"], {"batch_id": batch_id}))


async def lease_to_close(db: Database, claim: FinishClaim) -> list[Lease]:
    """Lease the unrun chunks of which checkpoints kept something; nobody but the claim's holder gets them."""
    params = {"batch_id": claim.batch_id, "claim_token": claim.claim_token}
    return [lease_of(row) for row in await db.fetch("finish.lease", SQL["lease_to_close"], params)]


async def committed_parts(db: Database, batch_id: BatchId) -> list[CommittedPart]:
    """Return the result objects of a batch in commit order."""
    rows = await db.fetch("finish.parts", SQL["committed_parts"], {"batch_id": batch_id})
    return [
        CommittedPart(
            seq=row.seq,
            output=_stored(row.out_key, row.out_bytes, row.out_sha256, row.out_crc32),
            errors=_stored(row.err_key, row.err_bytes, row.err_sha256, row.err_crc32),
        )
        for row in rows
    ]


def _stored(key: str | None, size_bytes: int, sha256: str | None, crc32: int | None) -> ResultObject | None:
    """Name a result object of a row, None where the row has none."""
    if key is None or sha256 is None:
        return None
    return ResultObject(key=key, size_bytes=size_bytes, sha256=sha256, crc32=crc32)


async def unrun_chunks(db: Database, batch_id: BatchId) -> list[UnrunChunk]:
    """Return the chunks without a result, in plan order."""
    return [unrun_of(row) for row in await db.fetch("finish.unrun", SQL["unrun_chunks"], {"batch_id": batch_id})]


def unrun_of(row: Any) -> UnrunChunk:
    """Make a chunk of a row that has a column for each of its fields."""
    return UnrunChunk(
        seq=row.seq,
        source_key=row.source_key,
        byte_start=row.byte_start,
        byte_length=row.byte_length,
        n_requests=row.n_requests,
        crc32=row.crc32,
        index=index_of(row),
        first_number=row.first_number,
    )


async def finish_batch(
    db: Database,
    claim: FinishClaim,
    *,
    output: ResultFile | None,
    errors: ResultFile | None,
    unrun: int,
) -> bool:
    """End a batch: its files and its final state appear together. False, and nothing written, when the claim is lost.

    ``unrun`` is how many lines were written as cancelled or expired by the assembler itself.
    """
    params = {
        "batch_id": claim.batch_id,
        "claim_token": claim.claim_token,
        "output_file_id": output and output.file_id,
        "error_file_id": errors and errors.file_id,
        "unrun": unrun,
    }
    files: Sequence[ResultFile] = [file for file in (output, errors) if file is not None]
    try:
        async with db.driver_transaction("finish.end") as transaction:
            for file in files:
                await transaction.fetch(SQL["insert_result_file"], asdict(file) | {"tenant_id": claim.tenant_id})
            if not await transaction.fetch(SQL["finish_batch"], params):
                raise LeaseLost("another process assembles this batch")
    except LeaseLost:
        return False
    return True
