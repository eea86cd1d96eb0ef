"""/v1/files: upload, list, get, delete, content.

Anthropic's clients use the same paths for files of another kind, which this service does not have: to them every one
of these paths is a 404 in their shape.
"""

from typing import Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from slackwater.api.auth import Authenticated
from slackwater.api.dependencies import Deps
from slackwater.api.dialect import Dialect, dialect_of
from slackwater.api.downloads import download
from slackwater.api.queries import one_of, page_of
from slackwater.api.replies import json_reply
from slackwater.api.upload_fields import PURPOSES
from slackwater.api.uploads import take_upload
from slackwater.api.wire import FileDeleted, file_object, list_object
from slackwater.db import files
from slackwater.db.files import FileRecord, no_such_file
from slackwater.domain.errors import NotFound, ObjectMissing
from slackwater.domain.ids import FileId, is_id

_MAX_LIMIT: Final = 10_000
_LISTED_PURPOSES: Final = (*PURPOSES, "assistants_output", "batch_output", "fine-tune-results")


async def openai_clients_only(request: Request) -> None:
    """Refuse the other family of clients. Raises NotFound."""
    if dialect_of(request.headers) is not Dialect.OPENAI:
        raise NotFound("This service has no Anthropic files API.")


router = APIRouter(dependencies=[Depends(openai_clients_only)])


@router.post("/v1/files")
async def upload_file(request: Request, deps: Deps, caller: Authenticated) -> Response:
    """Store an upload. Its lines are not looked at: what is wrong with them shows when a batch reads them."""
    return json_reply(file_object(await take_upload(request, deps, caller)))


@router.get("/v1/files")
async def list_files(request: Request, deps: Deps, caller: Authenticated) -> Response:
    """Return one page of files."""
    page = page_of(request.query_params, default_limit=_MAX_LIMIT, max_limit=_MAX_LIMIT, ordered=True)
    purpose = one_of(request.query_params, "purpose", _LISTED_PURPOSES)
    found = await files.list_files(deps.db, tenant_id=caller.tenant_id, page=page, purpose=purpose)
    objects = [file_object(file) for file in found.items]
    return json_reply(list_object(objects, [file.id for file in objects], has_more=found.has_more))


@router.get("/v1/files/{file_id}")
async def get_file(file_id: str, deps: Deps, caller: Authenticated) -> Response:
    """Return one file."""
    return json_reply(file_object(await _find(deps, caller, file_id)))


@router.delete("/v1/files/{file_id}")
async def delete_file(file_id: str, deps: Deps, caller: Authenticated) -> Response:
    """Hide a file at once. A batch that reads it goes on."""
    if not await files.delete_file(deps.db, tenant_id=caller.tenant_id, file_id=_known_form(file_id)):
        raise no_such_file(file_id)
    return json_reply(FileDeleted(id=file_id))


@router.api_route("/v1/files/{file_id}/content", methods=["GET", "HEAD"])
async def get_content(file_id: str, request: Request, deps: Deps, caller: Authenticated) -> Response:
    """Return the bytes of a file. Single ranges, If-Range and If-None-Match are honoured."""
    file = await _find(deps, caller, file_id)
    try:
        return await download(request, deps.blobs, file)
    except ObjectMissing:
        # Deleted and purged since we looked: a 404. A file that is still there has lost its bytes: our failure.
        await _find(deps, caller, file_id)
        raise


async def _find(deps: Deps, caller: Authenticated, file_id: str) -> FileRecord:
    return await files.get_file(deps.db, tenant_id=caller.tenant_id, file_id=_known_form(file_id))


def _known_form(text: str) -> FileId:
    """Return the text as an id; what cannot be one is not looked for. Raises NotFound."""
    if not is_id(text):
        raise no_such_file(text)
    return FileId(text)
