"""The error of one line, as its customer reads it, and how an engine's own error becomes one.

Engines disagree on the shape of an error body: ``{"error": {…}}``, ``{"error": "text"}``, ``{"object": "error", …}``,
FastAPI's ``{"detail": …}``, plain text, HTML, nothing. Customers get one shape, the OpenAI API's, with real nulls and
``code`` as a string.
"""

from typing import Final

import msgspec

from slackwater.domain.replies import parse_leniently

ERROR_STATUSES: Final = range(400, 600)
SERVER_ERRORS: Final = range(500, 600)

_LONGEST_MESSAGE: Final = 4_000
"""Characters kept of an engine's message; some engines echo the whole prompt in it."""
_TOO_MANY_REQUESTS: Final = 429


class LineError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why one line has no result."""

    status: int | None
    """The HTTP status that the line ended with, 400 to 599; None where no HTTP answer is to blame."""
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    """Never None where ``status`` is None: it is all such a line has to tell its kind."""


BATCH_EXPIRED: Final = LineError(
    status=None,
    code="batch_expired",
    message="This request could not be executed before the completion window expired.",
)
BATCH_CANCELLED: Final = LineError(
    status=None,
    code="batch_cancelled",
    message="This request was not executed because the batch was cancelled.",
)
INPUT_LOST: Final = LineError(
    status=None,
    code="input_lost",
    message="This request could not be executed: the input file was lost or changed in the object store while the batch"
    " ran. Upload it again and send the request in a new batch.",
    type="server_error",
)
RESULT_LOST: Final = LineError(
    status=None,
    code="result_lost",
    message="The result of this request was lost in the object store, too late to run it again. It is not charged; send"
    " the request in a new batch.",
    type="server_error",
)
REQUEST_TIMEOUT: Final = LineError(
    status=None,
    code="request_timeout",
    message="The model did not finish its answer within the time limit of one request.",
    type="timeout_error",
)
REPLY_TOO_LARGE: Final = LineError(
    status=None,
    code="reply_too_large",
    message="The model's answer is larger than the service keeps; ask for fewer tokens, choices or log-probabilities.",
)
ENGINE_KILLED: Final = LineError(
    status=None,
    code="engine_crashed",
    message="The engine died each time while it ran this request, the last time with nothing else running. It is set"
    " aside so that other requests are answered.",
    type="server_error",
)


def refused(message: str, *, param: str | None = None, code: str | None = None) -> LineError:
    """Make the error of a line that is refused before any engine sees it: a 400, as an engine would answer."""
    return LineError(status=400, message=message, param=param, code=code)


def unusable_reply(message: str) -> LineError:
    """Make the error of a line whose engine answered with something that is neither a result nor an error."""
    return LineError(status=None, code="invalid_engine_reply", message=message, type="server_error")


def error_from_reply(status: int, body: bytes) -> LineError:
    """Translate an engine's error answer of any shape; ``status`` is between 400 and 599."""
    value = parse_leniently(body)
    fields = _fields(value) if value is not None else {"message": _plain_text(body)}
    return LineError(
        status=status,
        message=_text(fields.get("message")) or f"The engine answered with status {status} and no message.",
        type=_text(fields.get("type")) or _type_of(status),
        param=_text(fields.get("param")),
        code=_code(fields.get("code")),
    )


def status_in(body: bytes) -> int | None:
    """Find the HTTP status that an error body names as its ``code``; None if it names none."""
    code = _fields(parse_leniently(body) or {}).get("code")
    return code if isinstance(code, int) and code in ERROR_STATUSES else None


def _fields(value: dict[str, object]) -> dict[str, object]:
    error = value.get("error")
    if isinstance(error, dict):
        return error
    if error is not None:
        return {**value, "message": error}
    if "message" not in value and "detail" in value:
        return {"message": _detail(value["detail"])}
    return value


def _detail(detail: object) -> object:
    """FastAPI's 422 is a list of objects with ``loc`` and ``msg``; all else is shown as it is."""
    if not isinstance(detail, list):
        return detail
    return "; ".join(
        f"{'.'.join(str(step) for step in item['loc'])}: {item['msg']}"
        for item in detail
        if isinstance(item, dict) and isinstance(item.get("loc"), list) and "msg" in item
    )


def _plain_text(body: bytes) -> str | None:
    """Text that is neither JSON nor a page: some servers explain a refusal so."""
    text = body[: 4 * _LONGEST_MESSAGE].decode("utf-8", "replace").strip()
    return None if text.startswith(("<", "{", "[")) else text


def _type_of(status: int) -> str:
    if status == _TOO_MANY_REQUESTS:
        return "rate_limit_error"
    return "server_error" if status in SERVER_ERRORS else "invalid_request_error"


def _text(value: object) -> str | None:
    """A string with something in it; ``"None"`` and ``"null"`` are how some servers write null."""
    if not isinstance(value, str) or value.strip() in {"", "None", "null"}:
        return None
    return value[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode()


def _code(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text(value)
