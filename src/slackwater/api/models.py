"""GET /v1/models: the names that lines may carry, for both families of clients."""

from fastapi import APIRouter
from starlette.responses import Response

from slackwater.api.auth import Authenticated
from slackwater.api.dependencies import Deps
from slackwater.api.replies import json_reply
from slackwater.api.wire import list_object, model_object
from slackwater.db import catalog
from slackwater.domain.errors import NotFound

router = APIRouter()


@router.get("/v1/models")
async def list_models(deps: Deps, _caller: Authenticated) -> Response:
    """Return every known name, with or without a live worker."""
    names = await catalog.list_names(deps.db)
    objects = [model_object(name) for name in names]
    return json_reply(list_object(objects, [each.id for each in objects], has_more=False))


@router.get("/v1/models/{model:path}")
async def get_model(model: str, deps: Deps, _caller: Authenticated) -> Response:
    """Return one name. Names may hold slashes."""
    found = None if "\0" in model else await catalog.find_name(deps.db, model)
    if found is None:
        raise NotFound(f"The model '{model[:200]}' does not exist.", param="model", code="model_not_found")
    return json_reply(model_object(found))
