"""The ``api`` role: HTTP for customers and operators, without state of its own."""

import contextlib
from datetime import timedelta

import uvicorn

from slackwater.api.app import create_app
from slackwater.api.dependencies import ApiDependencies
from slackwater.api.settings import ApiSettings
from slackwater.cli.site import NO_SEAMS, Seams, Site, new_uuid, open_site
from slackwater.config import Settings
from slackwater.probe import LagSampler, Probe


async def serve_api(settings: Settings, seams: Seams = NO_SEAMS) -> None:
    """Serve until told to stop; open requests are finished first."""
    async with contextlib.AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(settings, seams))
        stack.enter_context(LagSampler(site.metrics.event_loop_lag_seconds))
        await stack.enter_async_context(
            Probe(settings.probe_host, settings.probe_port, checks=site.checks(), registry=site.metrics.registry)
        )
        await uvicorn.Server(_server_config(site)).serve()


def _server_config(site: Site) -> uvicorn.Config:
    """Configure uvicorn: the fast loop and parser, our logs, nothing of its own in an answer."""
    settings = site.settings
    app = create_app(
        ApiDependencies(
            db=site.db, blobs=site.store, metrics=site.metrics, new_uuid=new_uuid, settings=_api_settings(settings)
        )
    )
    return uvicorn.Config(
        app,
        host=settings.api_host,
        port=settings.api_port,
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=15,
        h11_max_incomplete_event_size=64 * 1024,
    )


def _api_settings(settings: Settings) -> ApiSettings:
    """Pick what the HTTP API needs."""
    return ApiSettings(
        max_upload_bytes=settings.max_file_bytes,
        batch_file_lifetime=timedelta(days=settings.file_expiry_days),
        require_jsonl_suffix=settings.require_jsonl_suffix,
    )
