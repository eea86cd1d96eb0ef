"""What a line says around its body: ``custom_id``, ``method``, ``url``, ``body``.

``method`` is accepted in any case, since no other method could be meant; ``url`` has one spelling only.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from slackwater.domain.input_errors import Problem, quoted

FIELDS: Final = ("custom_id", "method", "url", "body")
_FIELDS: Final = frozenset(FIELDS)
_METHOD: Final = "POST"


class Envelope(NamedTuple):
    """A line whose own fields are in order."""

    custom_id: str
    body: dict[str, object]


def read_envelope(request: Mapping[str, object], *, url: str, max_custom_id_chars: int) -> Envelope | Problem:
    """Return a line's fields, or the first thing that is wrong with them."""
    if not request.keys() >= _FIELDS:
        return _missing([field for field in FIELDS if field not in request])
    custom_id, body = usable_custom_id(request, max_custom_id_chars), request["body"]
    if custom_id is None:
        return _unusable(request["custom_id"], max_custom_id_chars)
    method = request["method"]
    if method != _METHOD and not (isinstance(method, str) and method.upper() == _METHOD):
        message = f"The method must be 'POST', not {_shown(method)}."
        return Problem(code="invalid_method", message=message, param="method")
    if request["url"] != url:
        message = f"The url of this line is {_shown(request['url'])}, but the batch's endpoint is {quoted(url)}."
        return Problem(code="invalid_url", message=message, param="url")
    if not isinstance(body, dict):
        message = f"The body must be a JSON object, not {_kind(body)}."
        return Problem(code="invalid_request", message=message, param="body")
    return Envelope(custom_id, body)


def usable_custom_id(request: Mapping[str, object], max_chars: int) -> str | None:
    """Return the custom_id if it is one, however wrong the rest of the line is."""
    value = request.get("custom_id")
    return value if isinstance(value, str) and 0 < len(value) <= max_chars else None


def _missing(fields: list[str]) -> Problem:
    named = ", ".join(quoted(field) for field in fields)
    wanted = ", ".join(FIELDS)
    return Problem(
        code="missing_required_parameter",
        message=f"Missing required parameter{'s' if len(fields) > 1 else ''}: {named}. Each line needs {wanted}.",
        param=fields[0],
    )


def _unusable(custom_id: object, max_chars: int) -> Problem:
    if not isinstance(custom_id, str):
        message = f"The custom_id must be a string, not {_kind(custom_id)}."
    elif not custom_id:
        message = "The custom_id must not be empty."
    else:
        message = f"The custom_id has {len(custom_id)} characters; at most {max_chars} are allowed."
    return Problem(code="invalid_custom_id", message=message, param="custom_id")


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else _kind(value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"
