"""Takes an upload from a multipart body straight into the object store: flat memory, no temporary file, one reading.

Parts may come in any order (Python sends the file last, Node first) and without a Content-Length. The object becomes
visible only when the whole form has been read and found good; whatever ends the reading before that leaves nothing.
A body that is refused is still read on, up to a bound, since most clients look at the reply only after they have sent
all of it, and take a reset connection for a reason to send it again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from slackwater.api.form_parser import FormParser, FormPart, boundary_of
from slackwater.blobs.protocol import BlobWriter, Written
from slackwater.domain.errors import BadRequest, SlackwaterError, TooLarge

_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadLimits:
    """How much of anything is taken. Sizes in bytes."""

    max_file_bytes: int
    max_parts: int = 64
    max_field_bytes: int = 64 * 1024
    max_header_bytes: int = 4096
    """One header line of one part, its file name included."""
    max_other_bytes: int = 16 << 20
    """All that is not the file: fields, headers, boundaries, and whatever stands before the first or after the last."""
    drain_bytes: int = 64 << 20
    """How much of a refused body is still read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedForm:
    """All of the form but the file's bytes."""

    fields: dict[str, str]
    """Plain fields by name; of a repeated ``name[]`` the last."""
    filename: str | None
    """As the client sent it, for display only: never part of a path or key. None without a file part, or where that
    part names no file; may be empty."""
    has_file: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceivedUpload(ReceivedForm):
    """A form whose file is in the store."""

    written: Written | None
    """None where there was no file part."""


async def receive_upload(
    stream: AsyncIterator[bytes],
    content_type: str,
    *,
    limits: UploadLimits,
    open_writer: Callable[[], BlobWriter],
    file_field: str = "file",
    content_length: int | None = None,
    check: Callable[[ReceivedForm], None] | None = None,
) -> ReceivedUpload:
    """Read a form from ``stream``; write the part ``file_field`` with the writer that ``open_writer`` gives.

    ``check`` sees the form before the file becomes visible; what it raises leaves nothing stored. ``content_length``,
    if the client gave one, refuses a body that is too long before its first byte. Raises BadRequest for what is
    malformed, TooLarge (code ``file_too_large``), StoreUnavailable, and whatever the stream raises when the client is
    gone.
    """
    chunks = aiter(stream)
    try:
        _check_length(content_length, limits)
        parser = FormParser(
            boundary_of(content_type), max_parts=limits.max_parts, max_header_bytes=limits.max_header_bytes
        )
        async with AsyncExitStack() as writers:
            form = _Form(limits, file_field, lambda: writers.enter_async_context(open_writer()))
            async for chunk in chunks:
                form.count(len(chunk))
                for event in parser.feed(chunk):
                    await form.take(event)
            parser.end()
            return await form.finish(check)
    except SlackwaterError:
        await _drain(chunks, limits.drain_bytes)
        raise


class _Form:
    """A form that is being received."""

    def __init__(self, limits: UploadLimits, file_field: str, open_writer: Callable[[], Awaitable[BlobWriter]]) -> None:
        self._limits = limits
        self._file_field = file_field
        self._open_writer = open_writer
        self._fields: dict[str, str] = {}
        self._filename: str | None = None
        self._writer: BlobWriter | None = None
        self._part: FormPart | None = None
        self._value = bytearray()
        self._total_bytes = 0
        self._file_bytes = 0

    def count(self, length: int) -> None:
        """Count bytes of the body as they come. Raises BadRequest when too many of them are not the file's."""
        self._total_bytes += length
        if self._total_bytes - self._file_bytes > self._limits.max_other_bytes + length:
            raise BadRequest(f"The form has more than {self._limits.max_other_bytes} bytes beside its file.")

    async def take(self, event: FormPart | bytes | None) -> None:
        """Take the parser's next event. Raises BadRequest, TooLarge, StoreUnavailable."""
        match event:
            case bytes():
                await self._take_bytes(event)
            case FormPart():
                await self._begin(event)
            case None:
                self._end()

    async def finish(self, check: Callable[[ReceivedForm], None] | None) -> ReceivedUpload:
        """Make the file visible, unless the check refuses the form."""
        has_file = self._writer is not None
        if check is not None:
            check(ReceivedForm(fields=self._fields, filename=self._filename, has_file=has_file))
        written = await self._writer.finish() if self._writer is not None else None
        return ReceivedUpload(fields=self._fields, filename=self._filename, has_file=has_file, written=written)

    async def _begin(self, part: FormPart) -> None:
        self._part = part
        if part.name != self._file_field:
            if part.name in self._fields and not part.name.endswith("[]"):
                raise BadRequest(f"The field '{_shown(part)}' is there twice.", param=_shown(part))
            return
        if self._writer is not None:
            raise BadRequest(f"The form has more than one part '{self._file_field}'.", param=self._file_field)
        self._filename = part.filename
        self._writer = await self._open_writer()

    async def _take_bytes(self, data: bytes) -> None:
        part = self._part
        if part is not None and part.name == self._file_field and self._writer is not None:
            self._file_bytes += len(data)
            if self._file_bytes > self._limits.max_file_bytes:
                raise _too_large(self._limits, f"{self._file_bytes} bytes of it have come and more may follow")
            await self._writer.write(data)
            return
        self._value += data
        if part is not None and len(self._value) > self._limits.max_field_bytes:
            limit = self._limits.max_field_bytes
            raise BadRequest(f"The field '{_shown(part)}' is longer than {limit} bytes.", param=_shown(part))

    def _end(self) -> None:
        part, value = self._part, bytes(self._value)
        self._part = None
        self._value.clear()
        if part is None or part.name == self._file_field:
            return
        try:
            self._fields[part.name] = value.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"The field '{_shown(part)}' is not UTF-8.", param=_shown(part)) from error


def _check_length(content_length: int | None, limits: UploadLimits) -> None:
    if content_length is not None and content_length > limits.max_file_bytes + limits.max_other_bytes:
        raise _too_large(limits, f"the body announces {content_length} bytes")


def _too_large(limits: UploadLimits, came: str) -> TooLarge:
    message = f"The file is larger than the limit of {limits.max_file_bytes} bytes: {came}."
    return TooLarge(message, param="file", code="file_too_large")


def _shown(part: FormPart) -> str:
    return part.name[:_SHOWN_CHARACTERS]


async def _drain(chunks: AsyncIterator[bytes], most_bytes: int) -> None:
    async for chunk in chunks:
        most_bytes -= len(chunk)
        if most_bytes < 0:
            return
