"""The ``control`` role: plan, schedule, finish, sweep. Any number may run; one of them leads."""

import asyncio
import contextlib
import random
import socket
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from slackwater.blobs.leftovers import remove_leftovers
from slackwater.cli.site import NO_SEAMS, Seams, Site, clock, new_uuid, now, open_site, stop_event, store_settings
from slackwater.config import Settings
from slackwater.db.election import ElectionLock
from slackwater.domain.bodies import BodyRules
from slackwater.domain.limits import InputLimits
from slackwater.flow.claims import ClaimReturns
from slackwater.flow.finish import Finisher
from slackwater.flow.gauges import show_queue
from slackwater.flow.loop import Stage, run_stage
from slackwater.flow.plan import Planner, PlanSettings
from slackwater.flow.schedule import Leader
from slackwater.flow.sweep import Sweeper
from slackwater.flow.sweep_gate import unless_held
from slackwater.metrics import Metrics
from slackwater.probe import Check, LagSampler, Probe

_DAY_SECONDS: Final = 86_400.0
_TICK_SECONDS: Final = 0.1
_REST_SECONDS: Final = 0.1
_SWEEP_SECONDS: Final = 30.0
_ORPHAN_SECONDS: Final = 3600.0
"""Looking for orphans lists the whole store."""


async def serve_control(settings: Settings, seams: Seams = NO_SEAMS) -> None:
    """Run every stage of the control role until told to stop."""
    async with contextlib.AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(settings, seams))
        stack.enter_context(LagSampler(site.metrics.event_loop_lag_seconds))
        leader = _leader(site)
        stack.push_async_callback(leader.close)
        await stack.enter_async_context(
            Probe(
                settings.probe_host,
                settings.probe_port,
                checks=site.checks(),
                registry=site.metrics.registry,
                refresh=Check(name="queue", ask=lambda: show_queue(site.db, site.metrics)),
            )
        )
        stop = stop_event()
        async with asyncio.TaskGroup() as group:
            for stage in map(_gated(settings.database_url.get_secret_value()), _stages(site, leader)):
                observer = site.metrics.stage(stage.name)
                group.create_task(run_stage(stage, stop=stop, observer=observer), name=stage.name)


def _leader(site: Site) -> Leader:
    """Make this process's candidate for the lead."""
    url = site.settings.database_url.get_secret_value()
    return Leader(
        db=site.db,
        lock=ElectionLock(url),
        holder=f"{socket.gethostname()}-{new_uuid().hex[-8:]}",
        granted=site.metrics.lease("granted").inc,
        reaped=site.metrics.lease("lost").inc,
    )


def _stages(site: Site, leader: Leader) -> list[Stage]:
    """List what this role does, and how long each rests when there is nothing to do."""
    finisher = Finisher(
        db=site.db,
        store=site.store,
        new_uuid=new_uuid,
        stop_grace_seconds=site.settings.stop_grace_seconds,
        default_expiry_seconds=site.settings.file_expiry_days * _DAY_SECONDS,
        ended=lambda ending: site.metrics.batch_end(ending).inc(),
        revoked=site.metrics.lease("lost").inc,
        returns=ClaimReturns(site.db),
    )
    sweeper = Sweeper(
        db=site.db,
        store=site.store,
        keep_seconds=site.settings.keep_chunks_days * _DAY_SECONDS,
        now=now,
        leftovers=lambda since: remove_leftovers(
            site.settings.store_url, settings=store_settings(site.settings), untouched_since=since
        ),
    )
    planner = Planner(
        db=site.db,
        blobs=site.store,
        settings=_plan_settings(site.settings),
        observer=_PlanMeter(site.metrics),
        clock=clock,
        choose=random.randrange,
        returns=ClaimReturns(site.db),
    )
    return [
        Stage(name="plan", once=planner.plan_once, rest_seconds=_REST_SECONDS),
        Stage(name="schedule", once=_tick(site.metrics, leader), rest_seconds=_TICK_SECONDS),
        Stage(name="finish", once=finisher.expire_once, rest_seconds=1.0),
        Stage(name="finish", once=finisher.finish_once, rest_seconds=_REST_SECONDS),
        Stage(name="sweep", once=sweeper.sweep_files_once, rest_seconds=_SWEEP_SECONDS),
        Stage(name="sweep", once=sweeper.sweep_batches_once, rest_seconds=_SWEEP_SECONDS),
        Stage(name="sweep", once=sweeper.sweep_orphans_once, rest_seconds=_ORPHAN_SECONDS),
        Stage(name="sweep", once=sweeper.sweep_leftovers_once, rest_seconds=_ORPHAN_SECONDS),
        Stage(name="sweep", once=sweeper.sweep_segments_once, rest_seconds=_SWEEP_SECONDS),
        Stage(name="sweep", once=sweeper.forget_repeats_once, rest_seconds=_SWEEP_SECONDS),
        Stage(name="sweep", once=sweeper.forget_workers_once, rest_seconds=_SWEEP_SECONDS),
    ]


def _gated(database_url: str) -> Callable[[Stage], Stage]:
    """Let whatever deletes stand back while a backup needs it; all other stages are left as they are."""

    def gated(stage: Stage) -> Stage:
        return replace(stage, once=unless_held(stage.once, database_url)) if stage.name == "sweep" else stage

    return gated


def _tick(metrics: Metrics, leader: Leader) -> Callable[[], Awaitable[bool]]:
    """Wrap the leader's tick with its gauges."""

    async def tick() -> bool:
        started = clock()
        try:
            return await leader.schedule_once()
        finally:
            metrics.leader.set(leader.term is not None)
            if leader.term is not None:
                metrics.leader_term.set(leader.term)
                metrics.leader_tick_seconds.observe(clock() - started)

    return tick


def _plan_settings(settings: Settings) -> PlanSettings:
    """Pick what planning needs."""
    return PlanSettings(
        scratch=settings.scratch_dir or Path(tempfile.gettempdir()),
        limits=InputLimits(max_lines=settings.max_input_lines, max_input_bytes=settings.max_file_bytes),
        rules=BodyRules(allow_mixed_models=settings.allow_mixed_models, media_hosts=frozenset(settings.media_hosts)),
    )


class _PlanMeter:
    """Counts what planning refuses: lines by reason, and batches."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def rejected(self, code: str, lines: int) -> None:
        """Count so many lines refused for one reason: the codes are ours, and few."""
        self._metrics.plan_rejected_lines.labels(code).inc(lines)

    def failed(self) -> None:
        """Count one batch that ended with its plan."""
        self._metrics.batch_end("failed").inc()
