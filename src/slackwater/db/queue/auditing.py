"""Everything the database knows of one batch, for the auditor."""

from dataclasses import dataclass
from typing import Any

from slackwater.db.queue.results import ResultObject
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerSums:
    """The ledger's rows of one batch, added up."""

    rows: int
    succeeded: int
    input_tokens: int
    output_tokens: int
    costly_without_success: int
    """Rows that charge tokens although no line of theirs succeeded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedBatch:
    """One batch as its rows have it."""

    status: str
    errors: list[Any] | None
    planned: bool
    """Whether its input was ever read to the end: False for a batch cancelled before that."""
    input_key: str
    output_key: str | None
    error_key: str | None
    deleted_keys: frozenset[str]
    """Which of these belong to files that are deleted or past their time: their bytes may be gone."""
    total: int
    succeeded: int
    errored: int
    cancelled: int
    expired: int
    input_tokens: int
    output_tokens: int
    chunks_total: int
    chunks_kept: int
    """Chunk rows that are still there; 0 once the batch is swept."""
    chunks_committed: int
    file_pointers: tuple[ResultObject, ...]
    part_pointers: tuple[ResultObject, ...]
    ledger: LedgerSums


async def audited_batch(db: Database, batch_id: str) -> AuditedBatch | None:
    """Read one batch whole; None where there is none. Not one instant: for batches that have ended."""
    params = {"batch_id": batch_id}
    found = await db.fetch("audit.batch", SQL["audit_batch"], params)
    if not found:
        return None
    batch = found[0]
    pointers = await db.fetch("audit.pointers", SQL["audit_pointers"], params)
    parts = [row for row in pointers if row.kind == "part"]
    files = [row for row in pointers if row.kind == "file"]
    sums = (await db.fetch("audit.ledger", SQL["audit_ledger"], params))[0]
    return AuditedBatch(
        status=batch.status,
        errors=batch.errors,
        planned=batch.planned,
        input_key=batch.input_key,
        output_key=batch.output_key,
        error_key=batch.error_key,
        deleted_keys=frozenset(
            key
            for key, deleted in (
                (batch.input_key, batch.input_deleted),
                (batch.output_key, batch.output_deleted),
                (batch.error_key, batch.error_deleted),
            )
            if deleted
        ),
        total=batch.total,
        succeeded=batch.succeeded,
        errored=batch.errored,
        cancelled=batch.cancelled,
        expired=batch.expired,
        input_tokens=batch.input_tokens,
        output_tokens=batch.output_tokens,
        chunks_total=batch.chunks_total,
        chunks_kept=batch.chunks_kept,
        chunks_committed=batch.chunks_committed,
        file_pointers=tuple(ResultObject(key=row.key, size_bytes=row.size_bytes, sha256=row.sha256) for row in files),
        part_pointers=tuple(ResultObject(key=row.key, size_bytes=row.size_bytes, sha256=row.sha256) for row in parts),
        ledger=LedgerSums(
            rows=sums.rows,
            succeeded=sums.succeeded,
            input_tokens=sums.input_tokens,
            output_tokens=sums.output_tokens,
            costly_without_success=sums.costly_without_success,
        ),
    )
