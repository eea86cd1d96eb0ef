"""The objects of the API exactly as they are sent: every key always there, null where nothing is set.

Clients in strictly typed languages fail on a missing key and on a float; times are whole seconds.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec

from slackwater.db.batches import BatchRecord
from slackwater.db.catalog import ModelName
from slackwater.db.files import FileRecord
from slackwater.domain.states import PAUSABLE, BatchState

_USAGE_IS_FINAL = frozenset({BatchState.COMPLETED, BatchState.EXPIRED, BatchState.CANCELLED})


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file. ``expires_at`` is left out where the file never expires, as the API has it."""

    id: str
    object: str = "file"
    size_bytes: int = msgspec.field(name="bytes")
    created_at: int
    expires_at: int | msgspec.UnsetType = msgspec.UNSET
    filename: str
    purpose: str
    status: str = "processed"
    status_details: str | None = None


class FileDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a delete."""

    id: str
    object: str = "file"
    deleted: bool = True


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a batch. ``failed`` counts every line without a success: errored, cancelled, expired."""

    total: int
    completed: int
    failed: int


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Of the input tokens."""

    cached_tokens: int


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Of the output tokens."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the succeeded lines."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ErrorList(msgspec.Struct, frozen=True, kw_only=True):
    """Why the input was refused."""

    object: str = "list"
    data: list[dict[str, Any]]


class BatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. ``paused_at`` is ours, and there only while the batch is paused."""

    id: str
    object: str = "batch"
    endpoint: str
    model: str | None
    errors: ErrorList | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    paused_at: int | msgspec.UnsetType = msgspec.UNSET
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: Usage | None
    metadata: dict[str, str] | None


class ModelObject(msgspec.Struct, frozen=True, kw_only=True):
    """A model, readable by both families of clients: each finds its own keys and leaves the others alone."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "slackwater"
    max_model_len: int | None
    type: str = "model"
    display_name: str
    created_at: str


Item = TypeVar("Item", bound=msgspec.Struct)


class ListObject(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One page of a list. Without ``has_more`` some clients would page for ever."""

    object: str = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


def file_object(file: FileRecord) -> FileObject:
    """Show a file."""
    return FileObject(
        id=file.id,
        size_bytes=file.size_bytes,
        created_at=_seconds(file.created_at),
        expires_at=msgspec.UNSET if file.expires_at is None else _seconds(file.expires_at),
        filename=file.filename,
        purpose=file.purpose,
    )


def batch_object(batch: BatchRecord) -> BatchObject:
    """Show a batch."""
    return BatchObject(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.model,
        errors=None if batch.errors is None else ErrorList(data=batch.errors),
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        status=batch.status,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=_seconds(batch.created_at),
        in_progress_at=_maybe_seconds(batch.in_progress_at),
        expires_at=_seconds(batch.deadline),
        paused_at=_paused_at(batch),
        finalizing_at=_maybe_seconds(batch.finalizing_at),
        completed_at=_maybe_seconds(batch.completed_at),
        failed_at=_maybe_seconds(batch.failed_at),
        expired_at=_maybe_seconds(batch.expired_at),
        cancelling_at=_maybe_seconds(batch.cancelling_at),
        cancelled_at=_maybe_seconds(batch.cancelled_at),
        request_counts=RequestCounts(
            total=batch.total,
            completed=batch.succeeded,
            failed=batch.errored + batch.cancelled + batch.expired,
        ),
        usage=_usage(batch) if batch.status in _USAGE_IS_FINAL else None,
        metadata=batch.metadata,
    )


def _paused_at(batch: BatchRecord) -> int | msgspec.UnsetType:
    """Since when a batch is paused; a batch that ended, or is about to, no longer is."""
    if batch.paused_at is None or batch.status not in PAUSABLE:
        return msgspec.UNSET
    return _seconds(batch.paused_at)


def model_object(model: ModelName) -> ModelObject:
    """Show a model under one of its names."""
    return ModelObject(
        id=model.name,
        created=_seconds(model.created_at),
        max_model_len=model.max_model_len,
        display_name=model.name,
        created_at=model.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    )


def list_object(items: Sequence[Item], ids: Sequence[str], *, has_more: bool) -> ListObject[Item]:
    """Show one page; ``ids`` are those of the items, in their order."""
    return ListObject(
        data=list(items),
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=has_more,
    )


def _usage(batch: BatchRecord) -> Usage:
    return Usage(
        input_tokens=batch.input_tokens,
        input_tokens_details=InputDetails(cached_tokens=batch.cached_tokens),
        output_tokens=batch.output_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=batch.reasoning_tokens),
        total_tokens=batch.input_tokens + batch.output_tokens,
    )


def _seconds(instant: datetime) -> int:
    return int(instant.timestamp())


def _maybe_seconds(instant: datetime | None) -> int | None:
    return None if instant is None else _seconds(instant)
