"""The state of one download: where it stands, what to ask for next, and whether what comes is the right content.

A read that breaks is resumed with ``Range`` from the first byte that is missing; ``If-Range`` and the announced
length make sure that it is still the same content. Retries are counted anew after each byte that came, so a long
download over a bad line ends, and one that gets nowhere does not go on for ever.
"""

import re
from collections.abc import Mapping
from typing import Final

from slackwater.client.calls import Call, Pairs, segment
from slackwater.client.errors import BrokenDownload, ServiceUnreachable, UnexpectedReply
from slackwater.client.retrying import Outcome, Retries

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Download:
    """One file's download. Call :meth:`call`, then :meth:`opened`, :meth:`take` for what comes, :meth:`closed`."""

    def __init__(self, file_id: str, *, retries: Retries) -> None:
        self.offset_bytes = 0
        self.total_bytes: int | None = None
        self._path = f"/files/{segment(file_id)}/content"
        self._retries = retries
        self._etag: str | None = None
        self._skip_bytes = 0
        self._missed = 0

    def call(self) -> Call:
        """Ask for the content, or for what is still missing of it."""
        # Ranges and lengths count the bytes as stored: an encoding on the way would change both.
        headers: Pairs = (("Accept", "application/octet-stream"), ("Accept-Encoding", "identity"))
        if self.offset_bytes:
            headers = (*headers, ("Range", f"bytes={self.offset_bytes}-"))
            # A weak ETag does not promise equal bytes and is not allowed in If-Range.
            if self._etag is not None and not self._etag.startswith("W/"):
                headers = (*headers, ("If-Range", self._etag))
        return Call(method="GET", path=self._path, headers=headers)

    def opened(self, status: int, headers: Mapping[str, str]) -> None:
        """Note what a 2xx answer announces. Raises BrokenDownload where it is other content, UnexpectedReply."""
        match status:
            case 200:
                # The server does not know ranges (or no longer has this content: told by length and ETag below).
                self._skip_bytes = self.offset_bytes
                total = _length(headers)
            case 206 if self.offset_bytes:
                self._skip_bytes = 0
                total = self._partial_total(headers)
            case _:
                raise UnexpectedReply(f"the content came with HTTP {status}, which this API never gives")
        etag = headers.get("etag")
        self._must_equal("length", self.total_bytes, total)
        self._must_equal("ETag", self._etag, etag)
        self.total_bytes = total if total is not None else self.total_bytes
        self._etag = etag or self._etag

    def take(self, piece: bytes) -> bytes:
        """Return the bytes of ``piece`` that are new. Raises BrokenDownload where more comes than announced."""
        new = piece[self._skip_bytes :]
        self._skip_bytes -= len(piece) - len(new)
        self.offset_bytes += len(new)
        if self.total_bytes is not None and self.offset_bytes > self.total_bytes:
            raise BrokenDownload(f"more came than the {self.total_bytes} bytes that were announced")
        if new:
            self._missed = 0
        return new

    def closed(self) -> ServiceUnreachable | None:
        """Judge an answer that ended without an error: None where the content is whole."""
        if self.total_bytes is None or self.offset_bytes == self.total_bytes:
            return None
        return ServiceUnreachable(f"the download ended after {self.offset_bytes} of {self.total_bytes} bytes")

    def pause_seconds(self, outcome: Outcome) -> float | None:
        """Say how long to wait before asking again; None where ``outcome`` stands."""
        pause = self._retries.pause_seconds(self._missed, outcome)
        self._missed += 1
        return pause

    def _partial_total(self, headers: Mapping[str, str]) -> int | None:
        found = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
        if found is None or int(found[1]) != self.offset_bytes:
            raise BrokenDownload(
                f"asked for the content from byte {self.offset_bytes}, got {headers.get('content-range', 'no range')!r}"
            )
        return None if found[3] == "*" else int(found[3])

    def _must_equal(self, what: str, before: object, now: object) -> None:
        if before is not None and now is not None and before != now:
            raise BrokenDownload(f"the content changed while it was read: its {what} was {before} and is {now}")


def _length(headers: Mapping[str, str]) -> int | None:
    # Content-Length of an encoded body is not that of the content; we ask for none, a proxy may do as it likes.
    if headers.get("content-encoding", "identity") != "identity":
        raise UnexpectedReply("the content came encoded although that was not asked for")
    text = headers.get("content-length", "")
    return int(text) if text.isdecimal() else None
