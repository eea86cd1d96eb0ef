"""The programs that a benchmark starts beside the service, each ended with the block that started it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import proc
from bench.site import Failed

_STOP_SECONDS: Final = 15.0
_LONGEST_SECONDS: Final = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """An engine's server. ``url`` has no path."""

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return its CPU time so far, with that of its children."""
        return proc.cpu_seconds(proc.family(self.pid, proc.all_stats()))


@contextlib.contextmanager
def simulated_server(*, slots: int, log: Path) -> Iterator[Engine]:
    """Run the simulated engine as an HTTP server on loopback."""
    command = [sys.executable, "-m", "slackwater.inference.simulated_server", "--max-num-seqs", str(slots)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise Failed(f"the simulated server does not start: {log.read_text()[-2000:]}")
        yield Engine(url=url, pid=process.pid)
    finally:
        end(process)


def bare_client(url: str, requests: Path, *, in_flight: int, static: bool = False) -> dict[str, float]:
    """Send a batch input's bodies to an engine; returns wall and CPU seconds and the count of requests."""
    command = [sys.executable, "-m", "bench.bare_client", url, str(requests), "--in-flight", str(in_flight)]
    printed: dict[str, float] = run_json([*command, "--static"] if static else command)
    return printed


def run_json(command: list[str], *, said: str = "") -> Any:
    """Run a program to its end and decode what it printed. Raises Failed where it fails."""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        command, input=said, cwd=root, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[1:4])} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def end(process: "subprocess.Popen[str]") -> None:
    """Ask a program to end, wait, and kill it where it does not."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
