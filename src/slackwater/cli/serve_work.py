"""The ``work`` role: one engine and its feeder."""

import asyncio
import contextlib
import socket
from typing import Final

import structlog

from slackwater.cli.engines import model_label, open_engine, wait_for_start
from slackwater.cli.site import NO_SEAMS, Seams, clock, jitter, new_uuid, open_site, stop_event
from slackwater.config import Settings
from slackwater.domain.errors import SetupError
from slackwater.domain.ids import WorkerId
from slackwater.domain.outcomes import RetryPolicy
from slackwater.flow.work import Worker, WorkSettings
from slackwater.flow.work_engine import WatchSettings
from slackwater.flow.work_feed import FeedSettings
from slackwater.flow.work_meter import WorkMeter
from slackwater.inference.protocol import Engine
from slackwater.probe import Check, LagSampler, Probe

_LOG: Final = structlog.get_logger("slackwater.work")
_SURPLUS: Final = 16
"""Requests beyond the engine's slots, so that its queue is never empty and never grows."""
_UNKNOWN_SERVER_IN_FLIGHT: Final = 128


async def serve_work(settings: Settings, seams: Seams = NO_SEAMS) -> None:
    """Work until told to stop, then drain."""
    stop = stop_event()
    slots, surplus = _places(settings)
    async with contextlib.AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(settings, seams))
        stack.enter_context(LagSampler(site.metrics.event_loop_lag_seconds))
        engine = await open_engine(settings, site.metrics)
        stack.push_async_callback(engine.close)
        checks = (*site.checks(), Check(name="engine", ask=lambda: _ask(engine)))
        await stack.enter_async_context(
            Probe(settings.probe_host, settings.probe_port, checks=checks, registry=site.metrics.registry)
        )
        worker = Worker(
            site.db,
            site.store,
            engine,
            settings=_work_settings(settings, slots, surplus),
            observer=WorkMeter(site.metrics, model=model_label(settings), slots=slots, surplus=surplus, gpus=0),
            clock=clock,
            jitter=jitter,
        )
        await _run_unless_hopeless(worker, engine, stop)


async def _run_unless_hopeless(worker: Worker, engine: Engine, stop: asyncio.Event) -> None:
    """Work, but end with the reason where the engine can never start: a supervisor or a person has to see it."""
    working = asyncio.create_task(worker.run(stop), name="worker")
    starting = asyncio.create_task(wait_for_start(engine), name="engine-start")
    done, _ = await asyncio.wait({working, starting}, return_when=asyncio.FIRST_COMPLETED)
    if starting in done and starting.exception() is not None:
        stop.set()
    await working
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting


def _places(settings: Settings) -> tuple[int, int]:
    """Return the engine's slots and the surplus that may wait in its own queue."""
    if settings.max_in_flight is not None:
        slots = min(settings.max_in_flight, settings.max_num_seqs)
        return slots, settings.max_in_flight - slots
    if settings.engine == "url" and "max_num_seqs" not in settings.model_fields_set:
        return _UNKNOWN_SERVER_IN_FLIGHT, 0
    return settings.max_num_seqs, _SURPLUS


def _work_settings(settings: Settings, slots: int, surplus: int) -> WorkSettings:
    """Pick what the worker needs."""
    return WorkSettings(
        worker_id=WorkerId(settings.worker_id or f"{socket.gethostname()}-{settings.probe_port}"),
        incarnation=new_uuid(),
        slots=slots,
        feed=FeedSettings(
            in_flight=slots + surplus,
            request_timeout_seconds=settings.request_timeout_seconds,
            retries=RetryPolicy(max_attempts=settings.request_attempts),
        ),
        engine=WatchSettings(
            outage_seconds=settings.engine_outage_seconds, stall_seconds=settings.engine_stall_seconds
        ),
        checkpoint_seconds=settings.checkpoint_seconds,
        drain_seconds=settings.drain_grace_seconds,
    )


async def _ask(engine: Engine) -> None:
    """Ask the engine whether it is ready."""
    if not await engine.ready():
        raise SetupError("the engine is not ready")
