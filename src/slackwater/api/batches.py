"""/v1/batches: create, get, list, cancel; and our own: pause, resume."""

import hashlib
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from slackwater.api.auth import Authenticated
from slackwater.api.bodies import CreateBatch, parse_body, read_body
from slackwater.api.dependencies import Deps
from slackwater.api.dialect import Dialect
from slackwater.api.queries import page_of
from slackwater.api.repeats import once_of, repeat_of
from slackwater.api.replies import json_reply
from slackwater.api.wire import batch_object, list_object
from slackwater.db import batches
from slackwater.domain.errors import NotFound
from slackwater.domain.ids import BatchId, is_id
from slackwater.domain.ids import batch_id as format_batch_id
from slackwater.domain.states import BatchState
from slackwater.flow.intake import BatchRequest, BatchRules, start_batch

router = APIRouter()

_ROUTE: Final = "POST /v1/batches"
_DEFAULT_LIMIT: Final = 20
_MAX_LIMIT: Final = 100


@router.post("/v1/batches")
async def create_batch(request: Request, deps: Deps, caller: Authenticated) -> Response:
    """Start a batch. Its lines are checked afterwards: a bad file shows as a batch that becomes ``failed``."""
    raw = await read_body(request, max_bytes=deps.settings.max_json_body_bytes)
    asked = parse_body(CreateBatch, raw)
    expires_after = asked.output_expires_after
    batch = await start_batch(
        deps.db,
        tenant_id=caller.tenant_id,
        batch_id=format_batch_id(deps.new_uuid()),
        request=BatchRequest(
            dialect=Dialect.OPENAI,
            endpoint=asked.endpoint,
            completion_window=asked.completion_window,
            input_file_id=asked.input_file_id,
            invalid_lines=asked.invalid_lines,
            metadata=asked.metadata,
            output_expires_seconds=None if expires_after is None else expires_after.seconds,
        ),
        rules=BatchRules(
            shortest_window=deps.settings.shortest_window,
            longest_window=deps.settings.longest_window,
        ),
        once=once_of(repeat_of(request), caller, route=_ROUTE, body_sha256=hashlib.sha256(raw).digest()),
    )
    return json_reply(batch_object(batch))


@router.get("/v1/batches")
async def list_batches(request: Request, deps: Deps, caller: Authenticated) -> Response:
    """Return one page of batches, newest first."""
    page = page_of(request.query_params, default_limit=_DEFAULT_LIMIT, max_limit=_MAX_LIMIT, ordered=False)
    found = await batches.list_batches(deps.db, tenant_id=caller.tenant_id, dialect=Dialect.OPENAI, page=page)
    objects = [batch_object(batch) for batch in found.items]
    return json_reply(list_object(objects, [batch.id for batch in objects], has_more=found.has_more))


@router.get("/v1/batches/{batch_id}")
async def get_batch(batch_id: str, deps: Deps, caller: Authenticated) -> Response:
    """Return one batch."""
    found = await batches.get_batch(
        deps.db, tenant_id=caller.tenant_id, dialect=Dialect.OPENAI, batch_id=_known_form(batch_id)
    )
    return json_reply(batch_object(found))


@router.post("/v1/batches/{batch_id}/cancel")
async def cancel_batch(batch_id: str, deps: Deps, caller: Authenticated) -> Response:
    """Stop a batch; what is finished stays. A body is not looked at: some SDKs announce JSON and send none."""
    stopped = await batches.cancel_batch(
        deps.db, tenant_id=caller.tenant_id, dialect=Dialect.OPENAI, batch_id=_known_form(batch_id)
    )
    if stopped.status == BatchState.CANCELLED:
        deps.metrics.batch_end("cancelled").inc()
    return json_reply(batch_object(stopped))


@router.post("/v1/batches/{batch_id}/pause")
async def pause_batch(batch_id: str, deps: Deps, caller: Authenticated) -> Response:
    """Run nothing more of a batch for now; what is finished stays, and so does the deadline."""
    paused = await batches.pause_batch(
        deps.db, tenant_id=caller.tenant_id, dialect=Dialect.OPENAI, batch_id=_known_form(batch_id)
    )
    return json_reply(batch_object(paused))


@router.post("/v1/batches/{batch_id}/resume")
async def resume_batch(batch_id: str, deps: Deps, caller: Authenticated) -> Response:
    """Let a paused batch run on."""
    resumed = await batches.resume_batch(
        deps.db, tenant_id=caller.tenant_id, dialect=Dialect.OPENAI, batch_id=_known_form(batch_id)
    )
    return json_reply(batch_object(resumed))


def _known_form(text: str) -> BatchId:
    """Return the text as an id; what cannot be one is not looked for. Raises NotFound."""
    if not is_id(text):
        raise NotFound(f"No batch found with id '{text[:100]}'.")
    return BatchId(text)
