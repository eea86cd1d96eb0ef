"""Faults as they are done to a site: each is a few steps, now and later, in the main thread."""

import heapq
import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psycopg

from tests.soak.schedule import Fault
from tests.soak.site import Site
from tests.soak.watch import Watch

Step = tuple[float, Callable[[], object]]
"""What is done, and how many seconds after the fault's beginning."""

_CUT_ALL: Final = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""
_ON_TRIAL: Final = """
    SELECT 1 FROM chunks WHERE worker_id = %s AND state = 'leased'
    AND (cardinality(suspects) > 0 OR cardinality(on_trial) > 0)"""
_TRIAL_PATIENCE_SECONDS: Final = 20.0
_TRIAL_LOOK_SECONDS: Final = 1.0
_MOODS: Final = {
    "engine hangs": "hang",
    "engine full (503)": "full",
    "engine fails (500)": "fail",
    "engine talks garbage": "garbage",
}
_DEADLY: Final = frozenset({"engine killed", "engine hangs"})


@dataclass(order=True, slots=True)
class _Due:
    at: float
    number: int
    step: Callable[[], object]


class Injector:
    """Does what a schedule says when it is due, and counts it."""

    def __init__(self, site: Site, watch: Watch) -> None:
        self._site = site
        self._watch = watch
        self._due: list[_Due] = []
        self._numbers = itertools.count()
        self.done: Counter[str] = Counter()
        """Faults done, by kind."""
        self.left_out: Counter[str] = Counter()
        """Faults not done: an engine's death while a suspect ran alone would have convicted it."""

    def plan(self, fault: Fault, began: float) -> None:
        """Have a fault begin when it is due; ``began`` is the soak's beginning, in monotonic seconds."""
        self._at(began + fault.at_seconds, lambda: self._begin(fault, tries_until=time.monotonic()))

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._due

    def run_due(self) -> None:
        """Do what is due."""
        while self._due and self._due[0].at <= time.monotonic():
            heapq.heappop(self._due).step()

    def _at(self, at: float, step: Callable[[], object]) -> None:
        heapq.heappush(self._due, _Due(at, next(self._numbers), step))

    def _begin(self, fault: Fault, *, tries_until: float) -> None:
        """Do a fault's first step and have the others follow."""
        now = time.monotonic()
        if fault.kind in _DEADLY and self._tries_suspects(fault.target):
            if now < tries_until + _TRIAL_PATIENCE_SECONDS:
                self._at(now + _TRIAL_LOOK_SECONDS, lambda: self._begin(fault, tries_until=tries_until))
            else:
                self.left_out[fault.kind] += 1
            return
        self.done[fault.kind] += 1
        for delay, step in _steps(fault, self._site, self._watch):
            self._at(now + delay, step)
        self.run_due()

    def _tries_suspects(self, engine: int) -> bool:
        """Tell whether a worker runs suspects apart; True where nobody can tell."""
        with suppress(psycopg.OperationalError), psycopg.connect(self._site.postgres.url) as connection:
            return connection.execute(_ON_TRIAL, (f"work-{engine}",)).fetchone() is not None
        return True


def _steps(fault: Fault, site: Site, watch: Watch) -> Iterator[Step]:
    match fault.kind.partition(" ")[0]:
        case "worker":
            yield from _worker_steps(fault, site, watch)
        case "leader" | "api":
            yield from _role_steps(fault, site, watch)
        case "engine":
            yield from _engine_steps(fault, site, watch)
        case "store":
            yield from _store_steps(fault, site, watch)
        case _:
            yield from _postgres_steps(fault, site, watch)


def _worker_steps(fault: Fault, site: Site, watch: Watch) -> Iterator[Step]:
    name = f"work-{fault.target}"
    yield 0.0, lambda: watch.leases_of(name, fault.kind)
    match fault.kind:
        case "worker frozen":
            yield 0.0, lambda: site.signal_role(name, signal.SIGSTOP)
            yield fault.seconds, lambda: site.signal_role(name, signal.SIGCONT)
        case "worker killed":
            yield 0.0, lambda: site.end_role(name, signal.SIGKILL, down_seconds=fault.seconds)
        case _:
            yield 0.0, lambda: site.end_role(name, signal.SIGTERM, down_seconds=fault.seconds)


def _role_steps(fault: Fault, site: Site, watch: Watch) -> Iterator[Step]:
    if fault.kind == "api killed":
        yield 0.0, lambda: site.end_role("api", signal.SIGKILL, down_seconds=fault.seconds)
        return
    name = site.leader()
    yield 0.0, lambda: watch.new_leader(fault.kind)
    if fault.kind == "leader frozen":
        yield 0.0, lambda: site.signal_role(name, signal.SIGSTOP)
        yield fault.seconds, lambda: site.signal_role(name, signal.SIGCONT)
    else:
        yield 0.0, lambda: site.end_role(name, signal.SIGKILL, down_seconds=fault.seconds)


def _engine_steps(fault: Fault, site: Site, watch: Watch) -> Iterator[Step]:
    engine = site.engines[fault.target]
    yield 0.0, lambda: watch.commit_of(f"work-{fault.target}", fault.kind)
    match fault.kind:
        case "engine killed":
            yield 0.0, engine.kill  # the supervisor starts it again
        case "engine frozen":
            yield 0.0, lambda: engine.signal(signal.SIGSTOP)
            yield fault.seconds, lambda: engine.signal(signal.SIGCONT)
        case "engine hangs":
            yield 0.0, lambda: engine.mood("hang")
            yield fault.seconds, engine.kill  # as its operator would
        case kind:
            yield 0.0, lambda: engine.mood(_MOODS[kind])
            yield fault.seconds, lambda: engine.mood("well")


def _store_steps(fault: Fault, site: Site, watch: Watch) -> Iterator[Step]:
    if fault.kind == "store killed":
        yield 0.0, site.store.kill
        yield fault.seconds, site.store.start
    else:
        yield 0.0, lambda: site.store.signal(signal.SIGSTOP)
        yield fault.seconds, lambda: site.store.signal(signal.SIGCONT)
    yield fault.seconds, lambda: watch.next_commit(fault.kind)


def _postgres_steps(fault: Fault, site: Site, watch: Watch) -> Iterator[Step]:
    match fault.kind:
        case "connections cut":
            yield 0.0, lambda: _cut_connections(site.postgres.url)
        case "PostgreSQL killed":
            yield 0.0, site.postgres.kill
            yield fault.seconds, site.postgres.start
        case _:
            yield 0.0, site.postgres.stop
            yield fault.seconds, site.postgres.start
    yield fault.seconds, lambda: watch.next_commit(fault.kind)


def _cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_CUT_ALL)
