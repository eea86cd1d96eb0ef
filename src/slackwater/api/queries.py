"""The query of a list, read strictly: a parameter of ours is honoured or refused, never dropped.

Parameters that are nobody's (``?beta=true``) are ignored. A cursor that was misspelt (``after[]=``) is refused: a
client that pages would otherwise get the first page for ever.
"""

import re
from collections.abc import Collection
from typing import Final

from starlette.datastructures import QueryParams

from slackwater.db.pages import Order, PageRequest
from slackwater.domain.errors import BadRequest, NotFound
from slackwater.domain.ids import is_id

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def single(query: QueryParams, name: str) -> str | None:
    """Return a parameter that may be given once; None where it is absent. Raises BadRequest."""
    if any(key.startswith(f"{name}[") for key in query):
        raise BadRequest(f"Invalid parameter: '{name}' takes one plain value.", param=name, code="invalid_value")
    values = query.getlist(name)
    if len(values) > 1:
        raise BadRequest(
            f"Invalid parameter: '{name}' was given {len(values)} times.", param=name, code="invalid_value"
        )
    return values[0] if values else None


def one_of(query: QueryParams, name: str, allowed: Collection[str]) -> str | None:
    """Return a parameter with a closed list of values. Raises BadRequest."""
    value = single(query, name)
    if value is not None and value not in allowed:
        supported = ", ".join(f"'{each}'" for each in allowed)
        raise BadRequest(
            f"Invalid value for '{name}'. Supported values are: {supported}.", param=name, code="invalid_value"
        )
    return value


def page_of(query: QueryParams, *, default_limit: int, max_limit: int, ordered: bool) -> PageRequest:
    """Return which page is asked for; ``ordered`` says whether the list may be turned round. Raises BadRequest."""
    order: Order = "asc" if ordered and one_of(query, "order", ("asc", "desc")) == "asc" else "desc"
    return PageRequest(limit=_limit(query, default_limit, max_limit), order=order, after=_after(query))


def _limit(query: QueryParams, default: int, maximum: int) -> int:
    value = single(query, "limit")
    if value is None:
        return default
    if _NUMBER.fullmatch(value) is None or not 1 <= int(value) <= maximum:
        raise BadRequest(
            f"Invalid value for 'limit': expected an integer from 1 to {maximum}.", param="limit", code="invalid_value"
        )
    return int(value)


def _after(query: QueryParams) -> str | None:
    value = single(query, "after")
    if value is None:
        return None
    if not value:
        raise BadRequest("Invalid value for 'after': expected an id of this list.", param="after", code="invalid_value")
    if not is_id(value):
        raise NotFound(f"There is nothing with the id '{value[:64]}' in this list.", param="after")
    return value
