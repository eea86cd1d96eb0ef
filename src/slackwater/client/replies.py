"""The objects that the API answers, typed.

Only what the API's reference calls required is required here; everything else may be absent or null and is None
then. Keys this client does not know are dropped. Times are whole seconds since 1970, UTC.
"""

from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
"""The statuses that a batch never leaves."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file."""

    id: str
    object: str = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: str | None = None


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a delete."""

    id: str
    object: str = "file"
    deleted: bool


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a batch; all zero until it is validated, ``total == completed + failed`` when it has ended."""

    total: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def done(self) -> int:
        """Lines that have their result, good or bad."""
        return self.completed + self.failed


class CachedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the input tokens the engine had in its prefix cache."""

    cached_tokens: int = 0


class ReasoningTokens(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the output tokens were reasoning."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a batch's lines so far."""

    input_tokens: int = 0
    input_tokens_details: CachedTokens | None = None
    output_tokens: int = 0
    output_tokens_details: ReasoningTokens | None = None
    total_tokens: int = 0


class LineError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch failed validation; ``line`` counts from 1, None where the whole file is meant."""

    code: str | None = None
    message: str | None = None
    param: str | None = None
    line: int | None = None


class LineErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons, at least the first of them."""

    object: str = "list"
    data: list[LineError] = []


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it stands."""

    id: str
    object: str = "batch"
    endpoint: str
    model: str | None = None
    errors: LineErrors | None = None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int | None = None
    paused_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts | None = None
    usage: Usage | None = None
    metadata: dict[str, str] | None = None

    @property
    def ended(self) -> bool:
        """Whether the batch is in a status that it never leaves."""
        return self.status in ENDED

    @property
    def counts(self) -> RequestCounts:
        """The request counts, zeros where the service gave none."""
        return self.request_counts or RequestCounts()


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that requests may name."""

    id: str
    object: str = "model"
    created: int | None = None
    owned_by: str | None = None


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list; the next one starts after the last element's id."""

    data: list[T]
    has_more: bool = False
