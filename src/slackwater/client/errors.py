"""What can go wrong between a customer's program and the service, in one tree.

::

    SlackwaterError
    └── ClientError
        ├── ServiceUnreachable    no whole answer came, every retry included
        ├── ServiceRefused        an answer of 400 or more: `status`, `code`, `param`, `type`, `request_id`
        │   ├── NotAuthorized         401, 403
        │   ├── NotFound              404
        │   ├── Conflict              409
        │   ├── RateLimited           429, every retry included
        │   └── ServiceFailed         500 or more, every retry included
        ├── UnexpectedReply       an answer that this API does not give: a wrong base URL, or something in between
        ├── BrokenDownload        a file's content that is not the one announced
        └── SourceChanged         the file under upload became shorter while it was read

Arguments that no request could be made of are :class:`~slackwater.domain.errors.BadRequest`, before anything is sent.
"""

from typing import Final

import msgspec

from slackwater.domain.errors import SlackwaterError

_SHOWN_CHARACTERS: Final = 300


class ClientError(SlackwaterError):
    """Root of all that the client raises once something was sent."""


class ServiceUnreachable(ClientError):
    """No whole answer came: no connection, a broken one, or none in time."""


class ServiceRefused(ClientError):
    """The service answered 400 or more; ``str(error)`` is the service's own message."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str | None = None,
        param: str | None = None,
        type: str | None = None,  # noqa: A002 -- the API's name of it
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.type = type
        self.request_id = request_id


class NotAuthorized(ServiceRefused):
    """The key is missing, unknown, revoked, expired, or may not do this."""


class NotFound(ServiceRefused):
    """No such thing, for this key."""


class Conflict(ServiceRefused):
    """The thing is in a state that does not allow this."""


class RateLimited(ServiceRefused):
    """Too many calls, or a quota is used up."""


class ServiceFailed(ServiceRefused):
    """The service, or something in front of it, failed."""


class UnexpectedReply(ClientError):
    """An answer that this API does not give."""


class BrokenDownload(ClientError):
    """The content that came is not the content that was announced."""


class SourceChanged(ClientError):
    """The file under upload became shorter while it was read: nothing was stored."""


def refusal(status: int, body: bytes, *, request_id: str | None) -> ServiceRefused:
    """Turn an answer of 400 or more into its error; any body will do, also a proxy's HTML page."""
    fields = _error_object(body)
    message = _text(fields.get("message")) or _excerpt(body)
    return _class_of(status)(
        f"{message} (HTTP {status})" if message else f"the service answered HTTP {status} without a message",
        status=status,
        code=_text(fields.get("code")),
        param=_text(fields.get("param")),
        type=_text(fields.get("type")),
        request_id=request_id,
    )


def _class_of(status: int) -> type[ServiceRefused]:
    match status:
        case 401 | 403:
            return NotAuthorized
        case 404:
            return NotFound
        case 409:
            return Conflict
        case 429:
            return RateLimited
        case _:
            return ServiceFailed if status >= 500 else ServiceRefused  # noqa: PLR2004 -- the class of HTTP statuses


def _error_object(body: bytes) -> dict[str, object]:
    """Find the error object in the shapes that servers and proxies give it; empty where there is none."""
    try:
        reply = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    if not isinstance(reply, dict):
        return {}
    match reply.get("error", reply.get("detail", reply)):
        case dict() as fields:
            return fields
        case str() as message:
            return {"message": message}
        case _:
            return {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace").split())
    return text[:_SHOWN_CHARACTERS]
