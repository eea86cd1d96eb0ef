"""The soak's site: a whole service as processes of its own, and a supervisor that starts again whatever ends."""

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2

from slackwater.db.catalog import add_model
from slackwater.db.migrate import migrate
from slackwater.db.session import Database, PoolSettings
from tests.api_under_test import make_tenant
from tests.processes import Processes
from tests.soak.lines import MODEL
from tests.soak.programs import EngineProgram, Postgres, Store
from tests.soak.schedule import CONTROLS, TENANTS, WORKERS

SLOTS: Final = 16
_LEADS: Final = re.compile(r"^slackwater_leader 1(\.0)?$", re.MULTILINE)
_ASK_SECONDS: Final = 1.0
_START_SECONDS: Final = 180.0


@dataclass(kw_only=True)
class Site:
    """Handles on a running site. Everything here is for the main thread: children end with the thread they began in."""

    postgres: Postgres
    store: Store
    engines: list[EngineProgram]
    roles: Processes
    keys: dict[str, str]
    """The API key of each tenant."""
    unasked: list[str] = field(default_factory=list)
    """Roles that ended although nobody had told them to."""
    _down_until: dict[str, float] = field(default_factory=dict)
    """Of roles that were ended on purpose: when they may start again, in monotonic seconds."""

    def spawn(self, name: str) -> None:
        """Start a role, or start it again."""
        role, _, number = name.partition("-")
        if role == "work":
            self.roles.spawn(role, name, worker_id=name, engine_url=self.engines[int(number)].url)
        else:
            self.roles.spawn(role, name)

    def tend(self) -> None:
        """Start again what has ended."""
        for name, child in list(self.roles.children.items()):
            if child.poll() is None:
                continue
            down_until = self._down_until.get(name)
            if down_until is None:
                self.unasked.append(f"{name} ended with {child.returncode}")
            elif time.monotonic() < down_until:
                continue
            self._down_until.pop(name, None)
            self.spawn(name)
        for engine in self.engines:
            if not engine.running:
                engine.start()

    def end_role(self, name: str, number: signal.Signals, *, down_seconds: float) -> None:
        """End a role by a signal; the supervisor starts it again, no sooner than after so many seconds."""
        self._down_until[name] = time.monotonic() + down_seconds
        self.roles.children[name].send_signal(number)

    def all_alive(self) -> bool:
        """Tell whether every role's probe answers: one that was started again may take a while."""
        try:
            ports = self.roles.probes.values()
            return all(httpx2.get(_health(port), timeout=_ASK_SECONDS).is_success for port in ports)
        except httpx2.HTTPError:
            return False

    def end_absences(self) -> None:
        """Let every role that is down start again at once."""
        self._down_until = dict.fromkeys(self._down_until, time.monotonic())

    def signal_role(self, name: str, number: signal.Signals) -> None:
        """Send a signal that ends nothing: to freeze a role or to let it go on."""
        if self.roles.children[name].poll() is None:
            self.roles.children[name].send_signal(number)

    def leader(self) -> str:
        """Name the control process that leads, by its own word; the first one where none says so."""
        names = [f"control-{number}" for number in range(CONTROLS)]
        for name in names:
            with contextlib.suppress(httpx2.HTTPError):
                page = httpx2.get(f"http://127.0.0.1:{self.roles.probes[name]}/metrics", timeout=_ASK_SECONDS)
                if _LEADS.search(page.text):
                    return name
        return names[0]


@contextmanager
def running_site(
    folder: Path, *, seconds_per_token: float, settings: dict[str, str], say: Callable[[str], object]
) -> Iterator[Site]:
    """Run a site in a folder while the block runs: PostgreSQL, SeaweedFS, api, two controls, three workers and engines.

    Everything ends with the block, the roles on SIGTERM. Call it in the main thread.
    """
    postgres, store = Postgres(folder / "postgres"), Store(folder / "store")
    engines = [
        EngineProgram(folder / f"engine-{number}", slots=SLOTS, seconds_per_token=seconds_per_token)
        for number in range(WORKERS)
    ]
    roles = Processes(environment={}, logs=folder)
    site = Site(postgres=postgres, store=store, engines=engines, roles=roles, keys={})
    try:
        say("starting PostgreSQL, SeaweedFS and the engines")
        postgres.start()
        for program in (store, *engines):
            program.start()
        roles.environment = _settings(site) | settings
        migrate(postgres.url)
        site.keys = asyncio.run(_prepare(postgres.url))
        store.wait()
        say("starting the roles")
        for name in ("api", *(f"control-{n}" for n in range(CONTROLS)), *(f"work-{n}" for n in range(WORKERS))):
            site.spawn(name)
        for port in (roles.api_port, *roles.probes.values()):
            roles.wait(_health(port), seconds=_START_SECONDS)
        yield site
    finally:
        for child in roles.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
        try:
            roles.stop()
        finally:
            for program in (*engines, store):
                program.kill()
            postgres.stop()


def _health(port: int) -> str:
    return f"http://127.0.0.1:{port}/healthz"


async def _prepare(database_url: str) -> dict[str, str]:
    """Make the tenants and the model; returns the tenants' keys. As commands they would be half a dozen processes."""
    db = Database.connect(database_url, pool=PoolSettings(hot=1, other=1))
    try:
        await add_model(db, model_id=MODEL, actor="soak")
        return {name: (await make_tenant(db, name, weight=weight)).secret for name, weight in TENANTS.items()}
    finally:
        await db.close()


def _settings(site: Site) -> dict[str, str]:
    """Return the settings that all roles share."""
    return {
        **site.store.settings(),
        "SLACKWATER_DATABASE_URL": site.postgres.url,
        "SLACKWATER_ENGINE": "url",
        "SLACKWATER_MAX_NUM_SEQS": str(SLOTS),
        "SLACKWATER_MAX_IN_FLIGHT": str(SLOTS + 2),
        "SLACKWATER_LOG_FORMAT": "json",
    }
