"""A running service to measure: ``slackwater up`` in a folder of its own, as the processes that a user would have."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from bench import proc
from bench.figures import MEGABYTE

ROLES: Final = ("api", "control", "work", "postgres")
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05


class Failed(Exception):
    """A measurement could not be made, or what was measured was wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Handles on a running service. ``base_url`` ends in ``/v1``."""

    folder: Path
    pid: int
    base_url: str
    api_key: str
    database_url: str

    def families(self) -> dict[str, list[proc.Stat]]:
        """Return the living processes by role; the supervisor itself is ``up``."""
        stats = proc.all_stats()
        found: dict[str, list[proc.Stat]] = {role: [] for role in ROLES}
        for stat in stats:
            if stat.pid == self.pid:
                # What it has waited for counts where it ran.
                found["up"] = [stat]
            elif stat.parent == self.pid:
                found.setdefault(_role(stat), []).extend(proc.family(stat.pid, stats))
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time by role so far."""
        return {role: proc.cpu_seconds(members) for role, members in self.families().items()}

    def reset_peaks(self) -> None:
        """Begin to measure peak memory anew."""
        for members in self.families().values():
            for member in members:
                proc.reset_peak(member.pid)

    def peak_megabytes(self) -> dict[str, float]:
        """Return the peak resident size by role since :meth:`reset_peaks`: of its largest process.

        For PostgreSQL, whose processes share most of theirs, it is what all of them take now.
        """
        families = self.families()
        postgres = sum(proc.proportional_bytes(member.pid) for member in families["postgres"])
        peaks = {
            role: max((proc.peak_bytes(member.pid) for member in families[role]), default=0)
            for role in ROLES
            if role != "postgres"
        }
        return {role: size / MEGABYTE for role, size in (peaks | {"postgres": postgres}).items()}

    def query(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        """Ask the service's own database."""
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(sql, params).fetchall()

    def audit(self, batch_id: str) -> None:
        """Have the auditor read a batch. Raises Failed where a promise was broken."""
        done = subprocess.run(
            [sys.executable, "-m", "slackwater", "audit", "--json", batch_id],
            env=_environment({"SLACKWATER_DATA_DIR": str(self.folder)}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(f"the auditor found {batch_id} unsound: {done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextlib.contextmanager
def running_site(folder: Path, *arguments: str, settings: Mapping[str, object] | None = None) -> Iterator[Site]:
    """Run ``slackwater up`` with these arguments in a folder while the block runs, its worker ready.

    ``settings`` are named as in docs/settings.md. Raises Failed where it does not come up.
    """
    folder.mkdir(parents=True)
    given = {f"SLACKWATER_{name.upper()}": str(value) for name, value in (settings or {}).items()}
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "slackwater", "up", "--data-dir", str(folder), *arguments],
            env=_environment(given),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield _when_ready(folder, process)
    finally:
        _end(process)


def _when_ready(folder: Path, process: "subprocess.Popen[bytes]") -> Site:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "profile.toml").is_file():
            profile = tomllib.loads((folder / "profile.toml").read_text())
            database_url = tomllib.loads((folder / "site.toml").read_text())["database_url"]
            site = Site(
                folder=folder,
                pid=process.pid,
                base_url=profile["base_url"],
                api_key=profile["api_key"],
                database_url=database_url,
            )
            if site.query("SELECT 1 FROM workers WHERE engine_ready"):
                return site
        time.sleep(_POLL_SECONDS)
    raise Failed(f"the service does not come up: {(folder / 'up.log').read_text()[-2000:]}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        # Its children end with it: each has asked the kernel for that.
        process.kill()
        process.wait()


def _role(stat: proc.Stat) -> str:
    """Name the role of a child of ``up``: the word behind ``-m slackwater``, or the name of its program."""
    words = proc.arguments(stat.pid)
    return words[words.index("slackwater") + 1] if "slackwater" in words else stat.name


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without the settings of any other service, and these instead."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    return {**kept, **settings}
