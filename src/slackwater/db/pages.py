"""Pages of a list: newest (or oldest) first by id, continued behind a cursor. Ids of version 7 sort by creation."""

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Order = Literal["asc", "desc"]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """Which part of a list is wanted."""

    limit: int
    order: Order = "desc"
    after: str | None = None
    """The id behind which the page begins; None for the first page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[Item]):
    """One page, and whether another follows."""

    items: list[Item]
    has_more: bool
