"""Program between us and vLLM: whatever becomes of us, the engine ends, and all of its processes with it.

``python vllm_guard.py LOG GRACE COMMAND…``, its standard input a pipe that we hold open. The pipe's end, which a killed
process cannot fail to give, ends the engine; so does SIGTERM. ``PR_SET_PDEATHSIG`` alone would not do: it follows the
*thread* that started the child, and reaches vLLM's API server but not the engine core, which would live on.
GRACE is in seconds, from the polite request to the kill. Standard library only; leads a process group of its own,
which must have been made for it.
"""

import contextlib
import ctypes
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO, Final

_MOST_LOG_BYTES: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 65536
_LINUX: Final = sys.platform == "linux"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class RotatingLog:
    """Appends to a file; a full one is kept once, as ``NAME.old``."""

    def __init__(self, path: Path) -> None:
        """Start where the file ends."""
        self._path = path
        self._file: BinaryIO = path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write(self, data: bytes) -> None:
        """Append; a full disk loses lines, never the engine."""
        try:
            self._file.write(data)
            if self._file.tell() > _MOST_LOG_BYTES:
                self._file.close()
                self._path.replace(self._path.with_name(f"{self._path.name}.old"))
                self._file = self._path.open("ab", buffering=0)
        except OSError:
            return


class Guard:
    """One engine and what came of it."""

    def __init__(self, command: list[str], log: RotatingLog, *, grace_seconds: float) -> None:
        """Start the engine."""
        self._log = log
        self._grace_seconds = grace_seconds
        self._signals, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self._engine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_guard,  # noqa: PLW1509 - harmless in a process of one thread
        )
        assert self._engine.stdout is not None
        self._output = self._engine.stdout.fileno()
        self._kill_at = math.inf

    def run(self) -> int:
        """Copy the engine's output to the log until its last process has gone; return the engine's exit code."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (sys.stdin.fileno(), self._output, self._signals):
                selector.register(descriptor, selectors.EVENT_READ)
            while self._some_live():
                patience = None if self._kill_at == math.inf else max(0.0, self._kill_at - time.monotonic())
                for key, _ in selector.select(patience):
                    data = os.read(key.fd, _READ_BYTES)
                    if not data:
                        selector.unregister(key.fd)
                    self._heed(key.fd, data)
                if time.monotonic() >= self._kill_at:
                    self._log.write(b"guard: the engine did not end in time and is killed\n")
                    os.killpg(0, signal.SIGKILL)
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            while rest := os.read(self._output, _READ_BYTES):
                self._log.write(rest)
        return self._engine.returncode

    def _heed(self, source: int, data: bytes) -> None:
        if source == self._output:
            self._log.write(data)
        elif not data or signal.SIGTERM in data:
            self._end()

    def _end(self) -> None:
        if self._kill_at == math.inf:
            self._kill_at = time.monotonic() + self._grace_seconds
            os.killpg(0, signal.SIGTERM)

    def _some_live(self) -> bool:
        """Reap what has ended; the rest must not outlive vLLM's server."""
        try:
            while True:
                ended, status = os.waitpid(-1, os.WNOHANG)
                if not ended:
                    return True
                if ended == self._engine.pid:
                    self._engine.returncode = os.waitstatus_to_exitcode(status)
                    self._end()
        except ChildProcessError:
            return False


def _die_with_guard() -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    """Run the command in the arguments."""
    if _LINUX:
        # Orphans of the engine become ours, so that we can tell when the last one has gone.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    log, grace_seconds, *command = sys.argv[1:]
    return Guard(command, RotatingLog(Path(log)), grace_seconds=float(grace_seconds)).run()


if __name__ == "__main__":
    sys.exit(main())
