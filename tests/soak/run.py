"""One soak from its start to its report. It has to run in the main thread: what it starts ends with that thread."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from slackwater.blobs.store import open_store
from slackwater.db.session import Database, PoolSettings
from slackwater.flow.audit import audit
from tests.soak.customers import Customers, Served
from tests.soak.engine import read_record
from tests.soak.faults import Injector
from tests.soak.oracle import Verdict
from tests.soak.report import Recovery, Report
from tests.soak.schedule import Schedule
from tests.soak.site import Site, running_site
from tests.soak.watch import Watch

_SETTINGS: Final = {
    "SLACKWATER_CHECKPOINT_SECONDS": "5",
    "SLACKWATER_REQUEST_TIMEOUT_SECONDS": "45",
    "SLACKWATER_ENGINE_OUTAGE_SECONDS": "20",
    "SLACKWATER_DRAIN_GRACE_SECONDS": "5",
    "SLACKWATER_STOP_GRACE_SECONDS": "20",
}
"""Shorter than by default, so that minutes hold what otherwise takes hours; the lease is 30 s as everywhere."""
_SECONDS_PER_TOKEN: Final = 0.03
_TICK_SECONDS: Final = 0.05
_LOUD: Final = frozenset({"warning", "error", "critical"})


def soak(
    schedule: Schedule, folder: Path, *, settle_seconds: float = 300.0, say: Callable[[str], object] = lambda _: None
) -> Report:
    """Run a schedule in a folder, wait up to ``settle_seconds`` for every batch to end, audit each, and report."""
    with running_site(folder, seconds_per_token=_SECONDS_PER_TOKEN, settings=_SETTINGS, say=say) as site:
        watch = Watch(site.postgres.url)
        with watch.looking():
            injector, customers = Injector(site, watch), Customers(site, seed=schedule.seed)
            began = time.monotonic()
            for fault in schedule.faults:
                injector.plan(fault, began)
            for order in schedule.orders:
                customers.expect(order, began)
            calm = _hold(
                site, injector, customers, lambda: injector.idle and time.monotonic() > began + schedule.seconds, say
            )
            deadline = calm + settle_seconds
            ended = _hold(site, injector, customers, lambda: not customers.waiting or time.monotonic() > deadline, say)
        say("auditing every batch")
        unsound = asyncio.run(_audit_all(site, customers.served))
        repeated = customers.repeated_batches()
    return _report(schedule, site, watch, injector, customers, unsound, repeated, settle_seconds=ended - calm)


def _hold(
    site: Site, injector: Injector, customers: Customers, over: Callable[[], bool], say: Callable[[str], object]
) -> float:
    """Do what is due and start again what ended, until it is over; returns the monotonic time."""
    said = 0.0
    while not over():
        injector.run_due()
        site.tend()
        if time.monotonic() > said + 10.0:
            said = time.monotonic()
            say(f"{injector.done.total()} faults, {customers.waiting} orders open, {dict(customers.statuses())}")
        time.sleep(_TICK_SECONDS)
    return time.monotonic()


async def _audit_all(site: Site, served: list[Served]) -> dict[str, list[str]]:
    """Have the auditor read every batch; returns what is wrong, by batch."""
    url, settings = site.store.open_settings()
    db, store = (
        Database.connect(site.postgres.url, pool=PoolSettings(hot=2, other=2)),
        open_store(url, settings=settings),
    )
    try:
        reports = [await audit(db, store, one.batch_id) for one in served if one.batch_id is not None]
    finally:
        await store.close()
        await db.close()
    return {report.batch_id: report.faults for report in reports if not report.sound}


def _report(
    schedule: Schedule,
    site: Site,
    watch: Watch,
    injector: Injector,
    customers: Customers,
    unsound: dict[str, list[str]],
    repeated: int,
    *,
    settle_seconds: float,
) -> Report:
    verdict = Verdict()
    for one in customers.served:
        verdict.add(one.verdict)
    runs = Counter(taken.digest for engine in site.engines for taken in read_record(engine.record))
    ended = {"completed", "failed", "cancelled", "expired"}
    return Report(
        seed=schedule.seed,
        seconds=schedule.seconds,
        batches=customers.statuses(),
        verdict=verdict,
        unsound=unsound,
        not_ended=[one.order.name for one in customers.served if one.status not in ended],
        gave_up={one.order.name: one.trouble for one in customers.served if one.trouble is not None},
        repeated_batches=repeated,
        unasked_ends=site.unasked,
        faults=injector.done,
        left_out=injector.left_out,
        recoveries={kind: Recovery.of(seconds) for kind, seconds in watch.seconds.items()},
        unseen=watch.unseen,
        taken=runs.total(),
        rerun=runs.total() - len(runs),
        lines_once=len(runs),
        settle_seconds=settle_seconds,
        customers=customers.served,
        warnings=_warnings(site.roles.logs),
    )


def _warnings(folder: Path) -> Counter[str]:
    """Count what the roles logged as warnings and errors, by level, role and event."""
    found: Counter[str] = Counter()
    for log in folder.glob("*.log"):
        for row in log.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(row)
            except ValueError:
                found[f"not JSON, {log.stem}"] += 1
                continue
            if entry.get("level") in _LOUD:
                found[f"{entry['level']}, {log.stem.partition('-')[0]}: {entry.get('event')}"] += 1
    return found
