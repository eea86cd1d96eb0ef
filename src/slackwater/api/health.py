"""Whether this process lives, and whether it can serve: asked by supervisors and load balancers, without a key."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, Literal

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from slackwater.api.dependencies import ApiDependencies, Deps
from slackwater.api.replies import json_reply
from slackwater.domain.errors import ObjectMissing, Unavailable

router = APIRouter()

_METHODS: Final = ["GET", "HEAD"]
_NO_SUCH_OBJECT: Final = "inputs/readiness"

PartState = Literal["ok", "unavailable"]


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What the process needs to serve, part by part."""

    status: Literal["ready", "unavailable"]
    database: PartState
    store: PartState


@router.api_route("/healthz", methods=_METHODS)
async def healthz() -> Response:
    """Tell that the process lives. Asks nobody: a database that is down is no reason to restart us."""
    return json_reply(Liveness())


@router.api_route("/readyz", methods=_METHODS)
async def readyz(deps: Deps) -> Response:
    """Tell whether the database and the store answer; 503 says which does not."""
    limit = deps.settings.readiness_seconds
    database, store = await asyncio.gather(_state(_ask_database(deps), limit), _state(_ask_store(deps), limit))
    ready = database == store == "ok"
    readiness = Readiness(status="ready" if ready else "unavailable", database=database, store=store)
    return json_reply(readiness, status=200 if ready else 503)


async def _state(answer: Awaitable[Any], limit_seconds: float) -> PartState:
    try:
        async with asyncio.timeout(limit_seconds):
            await answer
    except (Unavailable, TimeoutError):
        return "unavailable"
    return "ok"


async def _ask_database(deps: ApiDependencies) -> None:
    await deps.db.fetch("readyz", "SELECT 1", {})


async def _ask_store(deps: ApiDependencies) -> None:
    """Ask for an object that is never there: any answer will do."""
    try:
        await deps.blobs.size(_NO_SUCH_OBJECT)
    except ObjectMissing:
        return
