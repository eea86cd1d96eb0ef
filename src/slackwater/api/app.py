"""The HTTP application: FastAPI's routing, and nothing of its defaults that a client would see."""

from fastapi import FastAPI

from slackwater.api import batches, files, health, models
from slackwater.api.dependencies import ApiDependencies
from slackwater.api.errors import install_error_handlers
from slackwater.api.gate import RequestGate


def create_app(deps: ApiDependencies) -> FastAPI:
    """Build the application on the given adapters. They stay their owner's: the application closes none of them."""
    app = FastAPI(
        title="Slackwater",
        # A redirect for a slash turns POST into GET: `gate` serves both spellings in place.
        redirect_slashes=False,
        # Pages of documentation would be served without a key, from a server that is somebody else's.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # Numbers come from `metrics`, failures from `logs`; the framework would export messages unredacted.
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    app.state.dependencies = deps
    app.add_middleware(RequestGate, new_uuid=deps.new_uuid, metrics=deps.metrics)
    install_error_handlers(app)
    routers = (files.router, batches.router, models.router, health.router)
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes]
    return app
