"""Intake, the first stage: an upload becomes a file, a request becomes a batch in ``validating``.

Object first, then row: a row never points at nothing. Where the row is refused, the object is taken away again. Where
nobody knows whether it was made (the connection broke around the commit) the object stays: the sweep removes what no
row names.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from slackwater.blobs.protocol import BlobStore
from slackwater.db.batches import BatchRecord, NewBatch, create_batch
from slackwater.db.files import FileRecord, NewFile, create_file, no_such_file
from slackwater.db.idempotency import Once
from slackwater.db.session import Database
from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.errors import BadRequest, RequestRefused
from slackwater.domain.ids import BatchId, TenantId, is_id

_WINDOW: Final = re.compile(r"([1-9][0-9]{0,3})([hd])", re.ASCII)
_UNIT: Final = {"h": timedelta(hours=1), "d": timedelta(days=1)}


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRules:
    """What the operator allows of a batch."""

    shortest_window: timedelta
    longest_window: timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRequest:
    """What a customer asks for, in the customer's own words."""

    dialect: str
    endpoint: str
    completion_window: str
    input_file_id: str
    invalid_lines: str
    metadata: dict[str, str] | None
    output_expires_seconds: int | None


async def keep_file(
    db: Database, blobs: BlobStore, *, tenant_id: TenantId, new: NewFile, once: Once | None
) -> FileRecord:
    """Make the row of an object that is whole in the store; where the row is refused, the object goes, too.

    A repetition of an earlier upload returns that file and drops the new object. Raises what ``create_file`` raises.
    """
    try:
        kept = await create_file(db, tenant_id=tenant_id, new=new, once=once)
    except RequestRefused:
        await _drop(blobs, new)
        raise
    if kept.id != new.id:
        await _drop(blobs, new)
    return kept


async def start_batch(
    db: Database,
    *,
    tenant_id: TenantId,
    batch_id: BatchId,
    request: BatchRequest,
    rules: BatchRules,
    once: Once | None,
) -> BatchRecord:
    """Make a batch that waits to be planned. Raises BadRequest or NotFound that names the field."""
    if request.endpoint not in ENDPOINTS:
        raise BadRequest(
            f"Invalid value: '{request.endpoint[:100]}'. Supported values are: {_listed(ENDPOINTS)}.",
            param="endpoint",
            code="invalid_value",
        )
    window = completion_window(request.completion_window, rules)
    if not is_id(request.input_file_id):
        # Never asked of the database: it may hold anything, U+0000 included.
        raise no_such_file(request.input_file_id, param="input_file_id")
    new = NewBatch(
        id=batch_id,
        dialect=request.dialect,
        endpoint=request.endpoint,
        completion_window=request.completion_window,
        window=window,
        input_file_id=request.input_file_id,
        invalid_lines=request.invalid_lines,
        metadata=request.metadata,
        output_expires_seconds=request.output_expires_seconds,
    )
    return await create_batch(db, tenant_id=tenant_id, new=new, once=once)


def completion_window(text: str, rules: BatchRules) -> timedelta:
    """Read ``24h`` or ``3d``. Raises BadRequest that says what is supported."""
    match = _WINDOW.fullmatch(text)
    window = int(match[1]) * _UNIT[match[2]] if match else None
    if window is None or not rules.shortest_window <= window <= rules.longest_window:
        raise BadRequest(
            f"Invalid value: '{text[:100]}'. Supported values are: '24h' and any other number of hours or days"
            f" from '{_shown(rules.shortest_window)}' to '{_shown(rules.longest_window)}', such as '6h' or '2d'.",
            param="completion_window",
            code="invalid_value",
        )
    return window


async def _drop(blobs: BlobStore, new: NewFile) -> None:
    await blobs.delete([new.object_key], stage="intake.drop")


def _listed(values: Collection[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _shown(window: timedelta) -> str:
    """Write a window as customers do, in whole days where it is a few."""
    hours, days = window // _UNIT["h"], window // _UNIT["d"]
    return f"{days}d" if days > 1 and days * _UNIT["d"] == window else f"{hours}h"
