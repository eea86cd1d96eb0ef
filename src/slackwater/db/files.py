"""Customers' files: rows that name an object of the store. Every question here is one tenant's.

A file that is deleted or past its time does not exist for anybody who asks; its bytes go later (``flow/sweep``), once
no live batch needs them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BindParameter, ColumnElement, Interval, Select, bindparam, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.db.compiled import compile_statement
from slackwater.db.idempotency import Once, claim_once, reclaim
from slackwater.db.pages import Page, PageRequest
from slackwater.db.session import Database, DriverTransaction
from slackwater.db.tables import files
from slackwater.domain.errors import NotFound
from slackwater.domain.ids import FileId, TenantId

_SHOWN: Final = (
    files.c.id,
    files.c.purpose,
    files.c.filename,
    files.c.size_bytes,
    files.c.sha256,
    files.c.object_key,
    files.c.created_at,
    files.c.expires_at,
)


def _own(tenant_id: TenantId | BindParameter[str]) -> tuple[ColumnElement[bool], ...]:
    """What makes a file visible to its tenant."""
    return (
        files.c.tenant_id == tenant_id,
        files.c.deleted_at.is_(None),
        or_(files.c.expires_at.is_(None), files.c.expires_at > func.now()),
    )


def _visible(tenant_id: TenantId | BindParameter[str]) -> Select[Any]:
    return select(*_SHOWN).where(*_own(tenant_id))


_GIVEN: Final = ("id", "tenant_id", "purpose", "filename", "size_bytes", "sha256", "object_key")
_ONE: Final = compile_statement(_visible(bindparam("tenant_id")).where(files.c.id == bindparam("file_id")))
_ONE_HELD: Final = compile_statement(
    _visible(bindparam("tenant_id")).where(files.c.id == bindparam("file_id")).with_for_update(read=True)
)
_CREATE: Final = compile_statement(
    insert(files)
    .values({name: bindparam(name) for name in _GIVEN})
    .values(expires_at=func.now() + bindparam("expires_after", type_=Interval))
    .returning(*_SHOWN)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFile:
    """A file whose object is already whole in the store."""

    id: FileId
    purpose: str
    filename: str
    """For display only: never part of a key or a path. Holds no control characters."""
    size_bytes: int
    sha256: str
    object_key: str
    expires_after: timedelta | None
    """Counted from the row's creation; None: kept until deleted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """One file that its tenant can see."""

    id: FileId
    purpose: str
    filename: str
    size_bytes: int
    sha256: str
    object_key: str
    created_at: datetime
    expires_at: datetime | None


async def create_file(db: Database, *, tenant_id: TenantId, new: NewFile, once: Once | None) -> FileRecord:
    """Make the row of a stored file. A repetition returns the earlier file: compare the ids, and drop the new object.

    Raises BadRequest for an idempotency key that came with another body, NotFound where the file of such a key is gone.
    """
    values = {
        "id": new.id,
        "tenant_id": tenant_id,
        "purpose": new.purpose,
        "filename": new.filename,
        "size_bytes": new.size_bytes,
        "sha256": new.sha256,
        "object_key": new.object_key,
        "expires_after": new.expires_after,
    }
    if once is None:
        (made,) = await _CREATE.fetch(db, "intake.file", **values)
        return FileRecord(**made._asdict())
    async with db.driver_transaction("intake.file") as transaction:
        earlier = await claim_once(transaction, tenant_id=tenant_id, once=once, resource_id=new.id)
        if earlier is not None:
            known = await _ONE.fetch_in(transaction, tenant_id=tenant_id, file_id=earlier)
            if known or once.attempt == "explicit":
                return _one(known, FileId(earlier))
            # Deleted meanwhile, under an id that this caller never heard of: to an SDK that is no answer at all.
            await reclaim(transaction, tenant_id=tenant_id, once=once, resource_id=new.id)
        (made,) = await _CREATE.fetch_in(transaction, **values)
        return FileRecord(**made._asdict())


async def get_file(db: Database, *, tenant_id: TenantId, file_id: FileId) -> FileRecord:
    """Return one file. One query. Raises NotFound when this tenant has none of this id."""
    return _one(await _ONE.fetch(db, "files.get", tenant_id=tenant_id, file_id=file_id), file_id)


async def list_files(db: Database, *, tenant_id: TenantId, page: PageRequest, purpose: str | None) -> Page[FileRecord]:
    """Return one page of the tenant's files; ``purpose`` of None: all. Raises NotFound for an unknown cursor.

    The cursor may be a file deleted meanwhile: paging while deleting skips nothing.
    """
    newest_first = page.order == "desc"
    statement = _visible(tenant_id).order_by(files.c.id.desc() if newest_first else files.c.id).limit(page.limit + 1)
    if purpose is not None:
        statement = statement.where(files.c.purpose == purpose)
    if page.after is not None:
        statement = statement.where(files.c.id < page.after if newest_first else files.c.id > page.after)
    async with db.transaction("files.list") as connection:
        if page.after is not None:
            await _require_cursor(connection, tenant_id, page.after)
        rows = (await connection.execute(statement)).mappings().all()
    return Page(items=[FileRecord(**row) for row in rows[: page.limit]], has_more=len(rows) > page.limit)


async def delete_file(db: Database, *, tenant_id: TenantId, file_id: FileId) -> bool:
    """Hide a file at once and for good; False when this tenant has none of this id.

    A batch that reads it goes on: the bytes stay until no live batch needs them.
    """
    statement = (
        update(files).where(*_own(tenant_id), files.c.id == file_id).values(deleted_at=func.now()).returning(files.c.id)
    )
    async with db.transaction("files.delete") as connection:
        return (await connection.execute(statement)).one_or_none() is not None


async def hold_input(transaction: DriverTransaction, *, tenant_id: TenantId, file_id: FileId) -> FileRecord:
    """Return a file and keep it from being deleted until this transaction ends; raises as :func:`get_file` does.

    Without the lock a file could be deleted and purged between this look and the batch that needs its bytes.
    """
    found = await _ONE_HELD.fetch_in(transaction, tenant_id=tenant_id, file_id=file_id)
    return _one(found, file_id, param="input_file_id")


def no_such_file(file_id: str, *, param: str = "id") -> NotFound:
    """Return what is said of a file that a tenant does not have; the id may be any text."""
    return NotFound(f"No such File object: {file_id[:100]}", param=param)


def _one(rows: list[Any], file_id: FileId, *, param: str = "id") -> FileRecord:
    if not rows:
        raise no_such_file(file_id, param=param)
    return FileRecord(**rows[0]._asdict())


async def _require_cursor(connection: AsyncConnection, tenant_id: TenantId, after: str) -> None:
    statement = select(files.c.id).where(files.c.tenant_id == tenant_id, files.c.id == after)
    if (await connection.execute(statement)).one_or_none() is None:
        raise no_such_file(after, param="after")
