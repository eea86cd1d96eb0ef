"""POST /v1/files: from a multipart body to a stored file, streamed, in whatever order its parts come."""

import hashlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from fastapi import Request
from prometheus_client import Counter
from starlette.requests import ClientDisconnect

from slackwater.api.dependencies import ApiDependencies
from slackwater.api.multipart import ReceivedForm, UploadLimits, receive_upload
from slackwater.api.repeats import once_of, repeat_of
from slackwater.api.settings import ApiSettings
from slackwater.api.upload_fields import read_fields
from slackwater.blobs.keys import input_key
from slackwater.blobs.protocol import Written
from slackwater.db.credentials import Caller
from slackwater.db.files import FileRecord, NewFile
from slackwater.domain.errors import BadRequest, RequestRefused
from slackwater.domain.ids import FileId
from slackwater.domain.ids import file_id as format_file_id
from slackwater.flow.intake import keep_file
from slackwater.metrics import StageOutcome

_ROUTE: Final = "POST /v1/files"


async def take_upload(request: Request, deps: ApiDependencies, caller: Caller) -> FileRecord:
    """Stream one upload into the store and make its row; one unit of intake. Raises what ``_take`` raises."""
    observer, clock = deps.metrics.stage("intake"), deps.metrics.clock
    started = clock()
    outcome: StageOutcome = "error"
    try:
        kept = await _take(request, deps, caller)
        outcome = "done"
    except (RequestRefused, ClientDisconnect):
        outcome = "rejected"
        raise
    finally:
        observer.count(outcome, seconds=clock() - started)
    return kept


async def _take(request: Request, deps: ApiDependencies, caller: Caller) -> FileRecord:
    """Receive and keep one upload. What is refused or broken off leaves nothing behind.

    Raises BadRequest, TooLarge, StoreUnavailable, DatabaseUnavailable, ClientDisconnect.
    """
    file_id = format_file_id(deps.new_uuid())
    key = input_key(file_id)
    settings = deps.settings
    repeat = repeat_of(request)

    def check(form: ReceivedForm) -> None:
        read_fields(form.fields, _named(form), settings)

    upload = await receive_upload(
        _counted(request.stream(), deps.metrics.upload_bytes),
        request.headers.get("content-type", ""),
        limits=UploadLimits(max_file_bytes=settings.max_upload_bytes),
        open_writer=lambda: deps.blobs.writer(key, stage="intake.upload"),
        content_length=_announced(request),
        check=check,
    )
    new = _new_file(file_id, upload, upload.written, settings)
    once = once_of(repeat, caller, route=_ROUTE, body_sha256=_digest(new))
    return await keep_file(deps.db, deps.blobs, tenant_id=caller.tenant_id, new=new, once=once)


def _new_file(file_id: FileId, form: ReceivedForm, written: Written | None, settings: ApiSettings) -> NewFile:
    fields = read_fields(form.fields, _named(form), settings)
    if written is None:
        raise _no_file()
    return NewFile(
        id=file_id,
        purpose=fields.purpose,
        filename=fields.filename,
        size_bytes=written.size_bytes,
        sha256=written.sha256,
        object_key=input_key(file_id),
        expires_after=fields.expires_after,
    )


def _named(form: ReceivedForm) -> str:
    """Return the file's name. Raises BadRequest where the form has no file, or one without a name."""
    if not form.has_file:
        raise _no_file()
    return form.filename or ""


def _no_file() -> BadRequest:
    return BadRequest("Missing required parameter: 'file'.", param="file", code="missing_required_parameter")


def _announced(request: Request) -> int | None:
    """Return the length a body announces; None where it comes in chunks. The server has checked its form."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


async def _counted(stream: AsyncIterator[bytes], counter: Counter) -> AsyncIterator[bytes]:
    async for piece in stream:
        counter.inc(len(piece))
        yield piece


def _digest(new: NewFile) -> bytes:
    """Hash what two uploads must have in common to be the same; the boundary of the form is new every time."""
    expires_after = None if new.expires_after is None else new.expires_after.total_seconds()
    return hashlib.sha256(msgspec.json.encode([new.sha256, new.purpose, new.filename, expires_after])).digest()
