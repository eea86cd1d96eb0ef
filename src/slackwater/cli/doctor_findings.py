"""What the doctor thinks of what it was told: facts in, findings out, nothing asked of anybody."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slackwater.db.catalog import Model, Worker
    from slackwater.db.diagnosis import Leadership, Server

TESTED_POSTGRES: Final = 18
"""The major version that every test of ours runs on."""
_CLOCKS_APART: Final = timedelta(seconds=5)
_NAMED: Final = 5


class Verdict(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    """Worth a look: it may be meant so."""
    FAULT = "fault"
    """The service, or a part of it, cannot work like this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""
    """What to do; empty where all is well."""


def ok(check: str, found: str) -> Finding:
    """Say that all is well."""
    return Finding(check=check, verdict=Verdict.OK, found=found)


def warn(check: str, found: str, advice: str) -> Finding:
    """Say that somebody should look."""
    return Finding(check=check, verdict=Verdict.WARN, found=found, advice=advice)


def fault(check: str, found: str, advice: str) -> Finding:
    """Say that it cannot work like this."""
    return Finding(check=check, verdict=Verdict.FAULT, found=found, advice=advice)


def judge_server(server: "Server") -> Finding:
    """Judge the database's server: it takes writes, keeps them, and is the version that is tested."""
    named = f"PostgreSQL {server.version}"
    if server.standby:
        return fault("database", f"{named} is a standby: it takes no writes", "name the primary in the database's URL")
    if not server.survives_power_loss:
        advice = "set fsync and full_page_writes to on: a power cut may lose or break what was committed"
        return fault("database", f"{named} does not force its writes to disk", advice)
    if not server.waits_for_commits:
        advice = "set synchronous_commit to on: a crash may forget results that were reported as committed"
        return warn("database", f"{named} answers before a commit is on disk", advice)
    if server.major != TESTED_POSTGRES:
        return warn("database", named, f"version {TESTED_POSTGRES} is what is tested")
    return ok("database", named)


def judge_schema(current: str | None, known: Sequence[str]) -> Finding:
    """Judge the schema's revision by those this version knows, the newest first."""
    head = known[0]
    if current is None:
        return fault("schema", "the database is empty", "run `slackwater migrate`")
    if current == head:
        return ok("schema", f"revision {current}")
    if current in known:
        return fault("schema", f"revision {current}, this version needs {head}", "run `slackwater migrate`")
    return fault(
        "schema",
        f"revision {current} is of another version of the service, this one knows {head}",
        "run the same version everywhere; a database does not go back",
    )


def judge_clocks(theirs: datetime, *, before: datetime, after: datetime) -> Finding:
    """Judge the database's clock by ours, read before and after it was asked."""
    ours = before + (after - before) / 2
    apart = theirs - ours
    found = f"{abs(apart).total_seconds():.1f} s {'behind' if theirs < ours else 'ahead of'} this machine"
    if abs(apart) <= _CLOCKS_APART + (after - before) / 2:
        return ok("clock", found)
    return warn("clock", found, "let both keep time with NTP: logs mislead, and S3 refuses requests 15 minutes off")


def judge_leadership(leadership: "Leadership | None") -> Finding:
    """Judge whether somebody leads: without a leader nothing is leased to workers."""
    if leadership is None:
        return fault("leader", "no control process has ever led", "start `slackwater control`")
    term = f"term {leadership.term}, {leadership.holder}, since {leadership.elected_at:%Y-%m-%d %H:%M:%S %Z}"
    if not leadership.alive:
        return fault("leader", f"nobody leads; the last was {term}", "start `slackwater control`, or read its log")
    return ok("leader", term)


def judge_workers(workers: "Sequence[Worker]") -> Finding:
    """Judge the workers: some are alive, with an engine, and take work."""
    alive = [worker for worker in workers if worker.alive]
    if not alive:
        silent = f"; {len(workers)} fell silent" if workers else ""
        return warn("workers", f"none is alive{silent}", "start `slackwater work`: batches wait until then")
    without = [worker.id for worker in alive if not worker.engine_ready]
    if without:
        return warn("workers", f"without an engine: {_listed(without)}", "read the log of the worker and its engine's")
    if all(worker.draining for worker in alive):
        return warn("workers", "all of them drain", "take one back: `slackwater worker drain WORKER --undo`")
    return ok("workers", f"{len(alive)} alive: {_listed([worker.id for worker in alive])}")


def judge_models(models: "Sequence[Model]") -> Finding:
    """Judge the models: some are known, and each has a live worker."""
    if not models:
        return warn("models", "none is known: every line is refused", "start a worker, or `slackwater model add`")
    waiting = [model.id for model in models if not model.live_workers]
    if waiting:
        advice = "start a worker for it: its lines wait until then; `slackwater model remove` refuses new ones"
        return warn("models", f"without a live worker: {_listed(waiting)}", advice)
    return ok("models", _listed([model.id for model in models]))


def _listed(names: Sequence[str]) -> str:
    """Name the first few, and say how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
