"""The bytes of a file over HTTP: whole or in part, straight from the store, in flat memory.

A transfer that fails half way is broken off, never ended: a client must not take a torso for the file.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, assert_never
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from slackwater.api.errors import Answer, error_response
from slackwater.api.ranges import Part, Unsatisfiable, Whole, requested_part
from slackwater.blobs.protocol import BlobStore
from slackwater.db.files import FileRecord
from slackwater.domain.errors import BadRequest

_FALLBACK_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. ")
_MEDIA_TYPE: Final = "application/octet-stream"
_UNSATISFIABLE: Final = Answer(status=416, openai_type="invalid_request_error", anthropic_type="invalid_request_error")


class _Pieces(Response):
    """Sends pieces as they come, and stops reading when the client has left."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes], *, status: int, headers: dict[str, str]) -> None:
        super().__init__(status_code=status, headers=headers, media_type=_MEDIA_TYPE)
        self._first = first
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and all pieces. A failed read raises through the server, which breaks the connection off."""
        request = Request(scope, receive)
        async with aclosing(self._rest):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for piece in self._rest:
                if await request.is_disconnected():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def content_disposition(filename: str) -> str:
    """Name a download (RFC 6266): plain ASCII for old clients, the true name percent-encoded (RFC 5987)."""
    fallback = "".join(each if each in _FALLBACK_CHARACTERS else "_" for each in filename)
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(filename, safe='')}"


async def download(request: Request, blobs: BlobStore, file: FileRecord) -> Response:
    """Answer with a file's bytes, the part that was asked for. HEAD gets the same head and reads nothing.

    The first piece is read before there is an answer: a store that is down is a plain error (StoreUnavailable), as is
    an object that is gone (ObjectMissing).
    """
    etag = f'"{file.sha256}"'
    headers = {
        "etag": etag,
        "accept-ranges": "bytes",
        "content-disposition": content_disposition(file.filename),
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-transform",
    }
    if _is_known(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    wanted = requested_part(
        range_header=request.headers.get("range"),
        if_range=request.headers.get("if-range"),
        etag=etag,
        size_bytes=file.size_bytes,
    )
    match wanted:
        case Whole():
            status, start, length = 200, 0, file.size_bytes
        case Part(start=start, length=length):
            status = 206
            headers["content-range"] = f"bytes {start}-{start + length - 1}/{file.size_bytes}"
        case Unsatisfiable():
            refused = BadRequest("The requested range lies behind the end of the file.", param="Range")
            answer = error_response(request, _UNSATISFIABLE, str(refused), refused=refused)
            answer.headers["content-range"] = f"bytes */{file.size_bytes}"
            return answer
        case _:
            assert_never(wanted)
    headers["content-length"] = str(length)
    if request.method == "HEAD" or not length:
        return Response(status_code=status, headers=headers, media_type=_MEDIA_TYPE)
    pieces = _closable(blobs.read(file.object_key, start=start, length=length))
    return _Pieces(await anext(pieces), pieces, status=status, headers=headers)


async def _closable(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Pass pieces on; closing this closes the reader behind it, which may have a piece under way."""
    try:
        async for piece in pieces:
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _is_known(if_none_match: str | None, etag: str) -> bool:
    """Tell whether the client has this content already."""
    tags = [] if if_none_match is None else [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags
