"""What the handlers are given: made once by the command line, handed to every request."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from slackwater.api.settings import ApiSettings
from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.metrics import Metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiDependencies:
    """The adapters, the source of ids and the settings that the HTTP API works with. Their owner closes them."""

    db: Database
    blobs: BlobStore
    metrics: Metrics
    new_uuid: Callable[[], uuid.UUID]
    """Version 7, so that ids sort by creation: lists are ordered by id."""
    settings: ApiSettings = field(default_factory=ApiSettings)


async def dependencies(request: Request) -> ApiDependencies:
    """Return what ``create_app`` was given."""
    given: ApiDependencies = request.app.state.dependencies
    return given


Deps = Annotated[ApiDependencies, Depends(dependencies)]
