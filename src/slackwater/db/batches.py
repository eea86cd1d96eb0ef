"""Customers' batches: made, shown, listed, paused, cancelled. Every question is one tenant's; the queue runs them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.types.json import Jsonb
from sqlalchemy import ColumnElement, Interval, Select, bindparam, case, func, insert, null, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.db.compiled import compile_statement
from slackwater.db.files import hold_input
from slackwater.db.idempotency import Once, claim_once
from slackwater.db.pages import Page, PageRequest
from slackwater.db.session import Database
from slackwater.db.tables import batches
from slackwater.domain.errors import BadRequest, NotFound, StateConflict
from slackwater.domain.ids import BatchId, FileId, TenantId
from slackwater.domain.states import CANCELLABLE, PAUSABLE, BatchState

_HIDDEN: Final = frozenset(
    {"tenant_id", "dialect", "invalid_lines", "output_expires_seconds", "input_key", "input_bytes", "plan_key"}
    | {"index_key", "ending", "swept_at", "chunks_total", "chunks_done", "chunks_lost"}
    | {"claim_token", "claimed_until", "claims"}
)
_SHOWN: Final = tuple(column for column in batches.c if column.name not in _HIDDEN)

_ONE: Final = compile_statement(
    select(*_SHOWN).where(
        batches.c.tenant_id == bindparam("tenant_id"),
        batches.c.dialect == bindparam("dialect"),
        batches.c.id == bindparam("batch_id"),
    )
)
_GIVEN: Final = (
    *("id", "tenant_id", "dialect", "endpoint", "completion_window", "invalid_lines", "output_expires_seconds"),
    *("input_file_id", "input_key", "input_bytes", "metadata"),
)
_CREATE: Final = compile_statement(
    insert(batches)
    .values({name: bindparam(name) for name in _GIVEN})
    .values(deadline=func.now() + bindparam("window", type_=Interval))
    .returning(*_SHOWN)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewBatch:
    """What a customer asks for, checked as far as it can be without the database."""

    id: BatchId
    dialect: str
    endpoint: str
    completion_window: str
    """As the customer wrote it."""
    window: timedelta
    input_file_id: str
    """As the customer wrote it: any text."""
    invalid_lines: str
    """``fail`` or ``error``: what one bad line does to the batch."""
    metadata: dict[str, str] | None
    output_expires_seconds: int | None
    """Lifetime of the result files; None: the service's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRecord:
    """One batch that its tenant can see."""

    id: BatchId
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None
    input_file_id: FileId
    output_file_id: FileId | None
    error_file_id: FileId | None
    model: str | None
    status: str
    errors: list[dict[str, Any]] | None
    """Objects of code, message, param and line; None unless the input was refused."""
    created_at: datetime
    deadline: datetime
    paused_at: datetime | None
    """Since when nothing of it is sent to an engine; None while it may run."""
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    expired_at: datetime | None
    cancelling_at: datetime | None
    cancelled_at: datetime | None
    total: int
    succeeded: int
    errored: int
    cancelled: int
    expired: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


async def create_batch(db: Database, *, tenant_id: TenantId, new: NewBatch, once: Once | None) -> BatchRecord:
    """Make a batch in ``validating``, or return the one that an earlier, equal request made. All or nothing.

    Raises NotFound for an input file this tenant does not have (unknown, deleted and another's read the same) and
    BadRequest for one of another purpose or an idempotency key that came with another body.
    """
    async with db.driver_transaction("intake.batch") as transaction:
        if once is not None:
            earlier = await claim_once(transaction, tenant_id=tenant_id, once=once, resource_id=new.id)
            if earlier is not None:
                known = await _ONE.fetch_in(transaction, tenant_id=tenant_id, dialect=new.dialect, batch_id=earlier)
                return _one(known, BatchId(earlier))
        source = await hold_input(transaction, tenant_id=tenant_id, file_id=FileId(new.input_file_id))
        if source.purpose != "batch":
            raise BadRequest(
                f"The file {source.id} has the purpose {source.purpose!r}; a batch reads a file of purpose 'batch'.",
                param="input_file_id",
            )
        made = await _CREATE.fetch_in(
            transaction,
            id=new.id,
            tenant_id=tenant_id,
            dialect=new.dialect,
            endpoint=new.endpoint,
            completion_window=new.completion_window,
            invalid_lines=new.invalid_lines,
            # None is the absence of metadata, not the JSON null.
            metadata=None if new.metadata is None else Jsonb(new.metadata),
            output_expires_seconds=new.output_expires_seconds,
            input_file_id=source.id,
            input_key=source.object_key,
            input_bytes=source.size_bytes,
            window=new.window,
        )
        return _one(made, new.id)


async def get_batch(db: Database, *, tenant_id: TenantId, dialect: str, batch_id: BatchId) -> BatchRecord:
    """Return one batch. One query, whatever the batch's size. Raises NotFound."""
    found = await _ONE.fetch(db, "batches.get", tenant_id=tenant_id, dialect=dialect, batch_id=batch_id)
    return _one(found, batch_id)


async def list_batches(db: Database, *, tenant_id: TenantId, dialect: str, page: PageRequest) -> Page[BatchRecord]:
    """Return one page of the tenant's batches. Raises NotFound for a cursor that is no batch of theirs."""
    newest_first = page.order == "desc"
    statement = _own(tenant_id, dialect).order_by(batches.c.id.desc() if newest_first else batches.c.id)
    if page.after is not None:
        statement = statement.where(batches.c.id < page.after if newest_first else batches.c.id > page.after)
    async with db.transaction("batches.list") as connection:
        if page.after is not None:
            await _require_cursor(connection, tenant_id, dialect, page.after)
        rows = (await connection.execute(statement.limit(page.limit + 1))).mappings().all()
    return Page(items=[BatchRecord(**row) for row in rows[: page.limit]], has_more=len(rows) > page.limit)


async def cancel_batch(db: Database, *, tenant_id: TenantId, dialect: str, batch_id: BatchId) -> BatchRecord:
    """Stop a batch: one that is not planned yet ends at once, a running one becomes ``cancelling``.

    Asking again while it is cancelling changes nothing and is no error. Raises NotFound, and StateConflict where the
    results are whole or the batch has ended: they stay as they are.
    """
    unplanned = batches.c.status == BatchState.VALIDATING
    stop = (
        update(batches)
        .where(batches.c.tenant_id == tenant_id, batches.c.dialect == dialect, batches.c.id == batch_id)
        .where(batches.c.status.in_(sorted(CANCELLABLE)))
        .values(
            status=case((unplanned, BatchState.CANCELLED.value), else_=BatchState.CANCELLING.value),
            ending="cancelled",
            cancelling_at=func.now(),
            cancelled_at=case((unplanned, func.now()), else_=None),
            # Whoever plans it loses the claim; whoever assembles what is done starts with a fresh one.
            claim_token=None,
            claimed_until=None,
            claims=0,
        )
        .returning(*_SHOWN)
    )
    async with db.transaction("batches.cancel") as connection:
        row = (await connection.execute(stop)).mappings().one_or_none()
        if row is not None:
            return BatchRecord(**row)
    current = await get_batch(db, tenant_id=tenant_id, dialect=dialect, batch_id=batch_id)
    if current.status != BatchState.CANCELLING:
        raise StateConflict(f"Cannot cancel a batch with status '{current.status}'.")
    return current


async def pause_batch(db: Database, *, tenant_id: TenantId, dialect: str, batch_id: BatchId) -> BatchRecord:
    """Send nothing of a batch to an engine until it is resumed; its deadline stays. Pausing again changes nothing.

    Raises NotFound, and StateConflict where nothing of it runs any more.
    """
    paused_at = func.coalesce(batches.c.paused_at, func.now())
    return await _set_pause(db, tenant_id, dialect, batch_id, paused_at, stage="batches.pause")


async def resume_batch(db: Database, *, tenant_id: TenantId, dialect: str, batch_id: BatchId) -> BatchRecord:
    """Let a paused batch run on. Resuming again changes nothing. Raises as :func:`pause_batch`."""
    return await _set_pause(db, tenant_id, dialect, batch_id, null(), stage="batches.resume")


async def _set_pause(
    db: Database,
    tenant_id: TenantId,
    dialect: str,
    batch_id: BatchId,
    paused_at: ColumnElement[Any],
    *,
    stage: str,
) -> BatchRecord:
    statement = (
        update(batches)
        .where(batches.c.tenant_id == tenant_id, batches.c.dialect == dialect, batches.c.id == batch_id)
        .where(batches.c.status.in_(sorted(PAUSABLE)))
        .values(paused_at=paused_at)
        .returning(*_SHOWN)
    )
    async with db.transaction(stage) as connection:
        row = (await connection.execute(statement)).mappings().one_or_none()
        if row is not None:
            return BatchRecord(**row)
    current = await get_batch(db, tenant_id=tenant_id, dialect=dialect, batch_id=batch_id)
    raise StateConflict(f"Cannot {stage.removeprefix('batches.')} a batch with status '{current.status}'.")


def _own(tenant_id: TenantId, dialect: str) -> Select[Any]:
    return select(*_SHOWN).where(batches.c.tenant_id == tenant_id, batches.c.dialect == dialect)


async def _require_cursor(connection: AsyncConnection, tenant_id: TenantId, dialect: str, after: str) -> None:
    if (await connection.execute(_own(tenant_id, dialect).where(batches.c.id == after))).one_or_none() is None:
        raise _unknown(after, param="after")


def _one(rows: list[Any], batch_id: BatchId) -> BatchRecord:
    if not rows:
        raise _unknown(batch_id)
    return BatchRecord(**rows[0]._asdict())


def _unknown(batch_id: str, *, param: str | None = None) -> NotFound:
    return NotFound(f"No batch found with id '{batch_id}'.", param=param)
