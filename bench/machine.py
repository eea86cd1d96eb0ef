"""The machine that figures belong to, and whether it had anything else to do."""

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench import proc
from slackwater.embedded.postgres_files import wheel_binaries

_PACKAGES: Final = ("slackwater", "aiohttp", "fastapi", "msgspec", "obstore", "psycopg", "uvicorn", "uvloop")
_SAMPLE_SECONDS: Final = 1.0
_IDLE_LOAD_PER_CORE: Final = 0.5
_BUSY_PERCENT: Final = 10.0
_GIBIBYTE: Final = 1 << 30


def machine_facts(*, folder: Path, engine: Path | None) -> dict[str, Any]:
    """Describe this machine and what else runs on it now; takes a second.

    ``folder`` is where data is written, ``engine`` the interpreter of the engine's environment if there is one.
    """
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _first("/proc/cpuinfo", "model name"),
        "memory_gib": round(proc.parse_bytes(Path("/proc/meminfo").read_text(), "MemTotal") / _GIBIBYTE, 1),
        "kernel": platform.release(),
        "filesystem": filesystem_of(folder, Path("/proc/mounts").read_text()),
        "python": platform.python_version(),
        "postgresql": _printed([str(wheel_binaries() / "postgres"), "--version"]),
        "packages": {name: _version(name) for name in _PACKAGES},
        "vllm": None if engine is None else _vllm_version(engine),
        "load_average_at_start": os.getloadavg()[0],
        "busy_percent_at_start": round(100.0 * _busy_share(), 1),
    }


def warnings(facts: dict[str, Any]) -> list[str]:
    """Say why figures from such a machine are not to be trusted; nothing where it was idle."""
    found = []
    if facts["load_average_at_start"] > _IDLE_LOAD_PER_CORE * facts["cores"]:
        found.append(f"the machine was not idle: its load average was {facts['load_average_at_start']:.2f}")
    if facts["busy_percent_at_start"] > _BUSY_PERCENT:
        found.append(f"other processes took {facts['busy_percent_at_start']} % of its CPU time at the start")
    return found


def headline(facts: dict[str, Any]) -> str:
    """Describe a machine in one line."""
    return (
        f"{facts['cores']} cores ({facts['processor']}), {facts['memory_gib']} GiB, {facts['filesystem']}, Linux "
        f"{facts['kernel']}, Python {facts['python']}, {facts['postgresql']}, vLLM {facts['vllm'] or 'not installed'}; "
        f"load average at start {facts['load_average_at_start']:.2f}"
    )


def filesystem_of(folder: Path, mounts: str) -> str:
    """Return the type of the file system a folder is on, from the text of ``/proc/mounts``."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        _, point, found, *_ = line.split()
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _busy_share() -> float:
    before = Path("/proc/stat").read_text()
    time.sleep(_SAMPLE_SECONDS)
    return proc.busy_share(before, Path("/proc/stat").read_text())


def _first(path: str, field: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _vllm_version(python: Path) -> str:
    program = (
        "from importlib.metadata import distributions as all\n"
        "print(*(f'{d.name} {d.version}' for d in all() if d.name.startswith('vllm')))"
    )
    return _printed([str(python), "-c", program])


def _printed(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
