"""Claims on batches that wait to be planned, and the one transaction that makes a plan visible."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec

from slackwater.db.queue.results import StoredRange
from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId, TenantId

_CHUNK_COLUMNS: Final = (
    *("batch_id", "seq", "tenant_id", "model", "byte_start", "byte_length", "n_requests"),
    *("first_number", "cost_seconds", "crc32", "index_start", "index_bytes", "index_crc32"),
)
LEASE_SECONDS = 30.0
"""A worker whose heartbeat is older than this is dead: its leases end, its models have one worker less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanClaim:
    """One batch that this process may plan until the claim lapses."""

    batch_id: BatchId
    tenant_id: TenantId
    endpoint: str
    dialect: str
    input_key: str
    input_bytes: int
    input_sha256: str
    invalid_lines: str
    """``fail`` or ``error``: what one bad line does to the batch."""
    claim_token: UUID
    claims: int
    """How often this batch was claimed, this time included and given back claims not."""
    max_lines: int | None
    """The tenant's own limit, None for the service's."""
    max_input_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownModel:
    """A model that lines may name, and what is learnt about it; None where nothing is known yet."""

    id: str
    max_model_len: int | None
    endpoints: frozenset[str] | None
    bytes_per_token: float | None
    seconds_per_line: float | None
    """Engine-seconds of one worker per line, at full concurrency."""
    live_workers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedChunk:
    """A run of lines in the source object that one worker will run."""

    seq: int
    model: str
    byte_start: int
    byte_length: int
    n_requests: int
    cost_seconds: float
    crc32: int | None = None
    """Of its bytes, as ``zlib.crc32`` computes it."""
    index: StoredRange | None = None
    """Its lines' entries in the plan's index."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedLines:
    """The lines that planning itself answered, written as one object of error lines."""

    model: str
    n_lines: int
    err_key: str
    err_bytes: int
    err_sha256: str
    err_crc32: int
    index: StoredRange
    """Their entries in the plan's index."""


async def claim_planning(db: Database, *, claim_seconds: float = 60.0) -> PlanClaim | None:
    """Claim the oldest batch that waits to be planned; None when there is none."""
    rows = await db.fetch("plan.claim", SQL["claim_planning"], {"claim_seconds": claim_seconds})
    if not rows:
        return None
    row = rows[0]
    return PlanClaim(
        batch_id=row.id,
        tenant_id=row.tenant_id,
        endpoint=row.endpoint,
        dialect=row.dialect,
        input_key=row.input_key,
        input_bytes=row.input_bytes,
        input_sha256=row.input_sha256,
        invalid_lines=row.invalid_lines,
        claim_token=row.claim_token,
        claims=row.claims,
        max_lines=row.max_lines,
        max_input_bytes=row.max_input_bytes,
    )


async def renew_claim(db: Database, batch_id: BatchId, claim_token: UUID, claim_seconds: float = 60.0) -> bool:
    """Keep a claim on a batch alive; False when it is lost."""
    params = {"batch_id": batch_id, "claim_token": claim_token, "claim_seconds": claim_seconds}
    return bool(await db.fetch("claim.renew", SQL["renew_claim"], params))


async def release_claim(db: Database, batch_id: BatchId, claim_token: UUID, *, pause_seconds: float) -> bool:
    """Give a claim back, as if it had never been; False when it is lost. Others may claim after the pause."""
    params = {"batch_id": batch_id, "claim_token": claim_token, "pause_seconds": pause_seconds}
    return bool(await db.fetch("claim.release", SQL["release_claim"], params))


async def known_models(db: Database) -> dict[str, KnownModel]:
    """Return every name that a line may carry, served ids and aliases alike."""
    rows = await db.fetch("plan.models", SQL["known_models"], {"lease_seconds": LEASE_SECONDS})
    return {
        row.name: KnownModel(
            id=row.id,
            max_model_len=row.max_model_len,
            endpoints=None if row.endpoints is None else frozenset(row.endpoints),
            bytes_per_token=row.bytes_per_token,
            seconds_per_line=row.seconds_per_line,
            live_workers=row.live_workers,
        )
        for row in rows
    }


async def publish_plan(
    db: Database,
    claim: PlanClaim,
    *,
    model: str | None,
    plan_key: str | None,
    index_key: str | None,
    chunks: Sequence[PlannedChunk],
    refused: RefusedLines | None,
) -> bool:
    """Make a plan visible in one transaction: its chunks exist and the batch runs, or neither.

    ``model`` is the name as the lines have it. A plan whose lines were all refused goes straight to finalizing.
    False when the claim was lost or the batch left validating (a cancel, say): nothing is written then.
    """
    n_refused = refused.n_lines if refused else 0
    params = {
        "batch_id": claim.batch_id,
        "claim_token": claim.claim_token,
        "model": model,
        "plan_key": plan_key,
        "index_key": index_key,
        "total": sum(chunk.n_requests for chunk in chunks) + n_refused,
        "refused": n_refused,
        "chunks_pending": len(chunks),
        "chunks_total": len(chunks) + (refused is not None),
        "chunks_done": int(refused is not None),
    }
    async with db.driver_transaction("plan.publish") as transaction:
        rows = await transaction.fetch(SQL["publish_plan"], params)
        if not rows:
            return False
        tenant_id = rows[0].tenant_id
        await transaction.copy("chunks", _CHUNK_COLUMNS, _chunk_rows(claim.batch_id, tenant_id, chunks))
        if refused is not None:
            synthetic = {
                "batch_id": claim.batch_id,
                "seq": len(chunks),
                "tenant_id": tenant_id,
                "model": refused.model,
                "n_lines": refused.n_lines,
                "err_key": refused.err_key,
                "err_bytes": refused.err_bytes,
                "err_sha256": refused.err_sha256,
                "err_crc32": refused.err_crc32,
                "index_start": refused.index.start,
                "index_bytes": refused.index.size_bytes,
                "index_crc32": refused.index.crc32,
                "claim_token": claim.claim_token,
            }
            await transaction.fetch(SQL["insert_refused_chunk"], synthetic)
    return True


def _chunk_rows(batch_id: str, tenant_id: str, chunks: Sequence[PlannedChunk]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of chunks.

    Lines are numbered in plan order, so that a line run twice keeps its number, and with it the ids of its result.
    """
    first_number = 0
    for chunk in chunks:
        place = (chunk.model, chunk.byte_start, chunk.byte_length, chunk.n_requests)
        entries = (None, None, None) if chunk.index is None else chunk.index[1:]
        yield (batch_id, chunk.seq, tenant_id, *place, first_number, chunk.cost_seconds, chunk.crc32, *entries)
        first_number += chunk.n_requests


async def fail_planning(db: Database, claim: PlanClaim, errors: Sequence[msgspec.Struct]) -> bool:
    """End a batch whose input is refused as a whole; False when the claim or the state was lost.

    ``errors`` must not be empty: a failed batch always says why. Each is an object of code, message, param and line.
    """
    return await _fail(db, "plan.fail", "fail_planning", claim.batch_id, claim.claim_token, errors)


async def _fail(
    db: Database, stage: str, statement: str, batch_id: str, claim_token: UUID, errors: Sequence[msgspec.Struct]
) -> bool:
    """Write the errors of a batch and its failed state in one guarded statement."""
    if not errors:
        raise ValueError("a failed batch must say why")
    data: list[Any] = [msgspec.to_builtins(error) for error in errors]
    params = {"batch_id": batch_id, "claim_token": claim_token, "errors": json.dumps(data)}
    return bool(await db.fetch(stage, SQL[statement], params))


async def fail_finishing(db: Database, batch_id: BatchId, claim_token: UUID, errors: Sequence[msgspec.Struct]) -> bool:
    """End a batch that nobody can assemble, uncharged; False when the claim or the state was lost."""
    return await _fail(db, "finish.fail", "fail_finishing", batch_id, claim_token, errors)
