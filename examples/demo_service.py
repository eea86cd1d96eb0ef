"""Starts ``slackwater up`` as a child, ends it, and makes sure that nothing of it is left."""

import ctypes
import os
import signal
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

READY_SECONDS = 120.0
STOP_SECONDS = 90.0
LEFTOVER_SECONDS = 5.0
POLL_SECONDS = 0.1
PR_SET_CHILD_SUBREAPER = 36


class DemoFailed(Exception):
    """The demo cannot go on; the message says why and where to look."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A running ``slackwater up``."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    log: Path
    base_url: str = ""
    api_key: str = ""

    def check(self) -> None:
        """Raise DemoFailed where the service has ended by itself."""
        if self.process.poll() is not None:
            raise DemoFailed(f"slackwater up ended by itself, exit code {self.process.returncode}")


@contextmanager
def running(command: Sequence[str], data_dir: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """Run ``command`` (``slackwater up …``) while the block runs. DemoFailed also where it does not end clean."""
    adopt_orphans()
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "up.log"
    profile = data_dir / "profile.toml"
    before = version(profile)
    # `up` prints the API key: the log is for its owner's eyes alone.
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        # In a session of its own a Ctrl-C in the terminal reaches us alone, and we end it once, in order.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        yield wait_until_ready(Service(process=process, data_dir=data_dir, log=log), profile, before)
    except BaseException:
        # What went wrong first is what must be told.
        with suppress(DemoFailed):
            stop(process)
        with suppress(DemoFailed):
            end_leftovers()
        raise
    stop(process)
    end_leftovers()


def wait_until_ready(service: Service, profile: Path, before: int | None) -> Service:
    """Return the service with its URL and key, once it has written its profile anew and answers."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        service.check()
        if version(profile) != before:
            fields = tomllib.loads(profile.read_text(encoding="utf-8"))
            if answers(fields["base_url"].removesuffix("/v1") + "/readyz"):
                return Service(
                    process=service.process,
                    data_dir=service.data_dir,
                    log=service.log,
                    base_url=fields["base_url"],
                    api_key=fields["api_key"],
                )
        time.sleep(POLL_SECONDS)
    raise DemoFailed(f"the service was not ready within {READY_SECONDS:.0f} s")


def version(path: Path) -> int | None:
    """Tell one writing of a file from another; None where there is none. A profile of an earlier run may be there."""
    return path.stat().st_mtime_ns if path.exists() else None


def answers(url: str) -> bool:
    """Tell whether a GET is answered with 200. No proxy: what we ask listens on this machine."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as reply:
            return bool(reply.status == HTTPStatus.OK)
    except (urllib.error.URLError, OSError):
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the service as Ctrl-C would. Raises DemoFailed where it does not end, or not well."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise DemoFailed(f"the service did not end within {STOP_SECONDS:.0f} s of SIGTERM") from None
    if code not in {0, -signal.SIGTERM}:
        raise DemoFailed(f"slackwater up ended with exit code {code}")


def adopt_orphans() -> None:
    """Become the parent of every process that is left when its own parent ends, so that none can hide (Linux)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_leftovers() -> None:
    """Make sure that no process of the service is left; kill what is. Raises DemoFailed where something was."""
    deadline = time.monotonic() + LEFTOVER_SECONDS
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        reap()
        time.sleep(POLL_SECONDS)
    if left:
        names = ", ".join(f"{pid} ({name})" for pid, name in left.items())
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for_adopted()
        raise DemoFailed(f"processes were left running and had to be killed: {names}")


def reap() -> None:
    """Let adopted processes that have ended go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wait_for_adopted() -> None:
    """Wait until every adopted process is gone."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass


def descendants(ancestor: int) -> dict[int, str]:
    """Find every process below ``ancestor``, dead ones aside, by /proc: pid to name. Empty where there is no /proc."""
    parents: dict[int, tuple[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state ppid …": the name may hold spaces and parentheses.
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue
        name, _, fields = rest.rpartition(") ")
        state, parent = fields.split()[:2]
        if state != "Z":
            parents[int(pid)] = (int(parent), name)
    found: dict[int, str] = {}
    frontier = {ancestor}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier and pid not in found}
        found |= {pid: parents[pid][1] for pid in frontier}
    return found
