"""One HTTP exchange as plain values: what is asked, what came back, and the type it is read as.

Nothing here does I/O: the sync and the async client send the same calls and read the replies with the same code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from slackwater.client.errors import UnexpectedReply, refusal
from slackwater.client.multipart_body import MultipartBody
from slackwater.domain.errors import BadRequest

T = TypeVar("T")

Pairs = tuple[tuple[str, str], ...]

_OK: Final = range(200, 300)
_REFUSED_FROM: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request; sending it again sends the same bytes."""

    method: str
    path: str
    """Relative to the base URL, with a leading slash, percent-encoded."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes | MultipartBody | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the body can be read a second time."""
        return not isinstance(self.body, MultipartBody) or self.body.source.repeatable


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One whole answer."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    def checked(self) -> bytes:
        """Return the body of a 2xx answer. Raises ServiceRefused, or UnexpectedReply for a redirect and the like."""
        if self.status in _OK:
            return self.body
        if self.status >= _REFUSED_FROM:
            raise refusal(self.status, self.body, request_id=self.headers.get("x-request-id"))
        raise UnexpectedReply(f"the answer was HTTP {self.status}, which this API never gives: check the base URL")


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation(Generic[T]):
    """A call, and the type of its answer."""

    call: Call
    into: type[T]

    def decode(self, reply: Reply) -> T:
        """Read the answer. Raises ServiceRefused and UnexpectedReply."""
        body = reply.checked()
        try:
            return msgspec.json.decode(body, type=self.into)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedReply(
                f"the answer to {self.call.method} {self.call.path} is not what this API gives ({error}): "
                "check the base URL"
            ) from error


def json_call(path: str, body: Mapping[str, object], *, headers: Pairs = ()) -> Call:
    """Make a POST of one JSON object."""
    return Call(
        method="POST",
        path=path,
        headers=(("Content-Type", "application/json"), *headers),
        body=msgspec.json.encode(body),
    )


def segment(identifier: str) -> str:
    """Percent-encode an id for use as one path segment. Raises BadRequest where it can be none."""
    if identifier in {"", ".", ".."}:
        raise BadRequest(f"an id is needed, not {identifier!r}", param="id")
    return quote(identifier, safe="")


def normal_base_url(base_url: str) -> str:
    """Return the base URL with ``/v1`` where it has no path, and without a trailing slash.

    Raises BadRequest where it is no http(s) URL, or has a query or a fragment (paths are appended to it).
    """
    parts = urlsplit(base_url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadRequest(f"{base_url!r} is not a base URL such as http://127.0.0.1:8000/v1", param="base_url")
    if parts.query or parts.fragment:
        raise BadRequest(f"a base URL has no query and no fragment: {base_url!r}", param="base_url")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"
