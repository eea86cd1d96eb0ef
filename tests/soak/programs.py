"""The programs that a soak's service stands on, which can be killed, frozen and started again where they were."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

from slackwater.blobs.settings import StoreSettings
from slackwater.embedded.postgres import EmbeddedPostgres
from tests.processes import free_port
from tests.s3 import ACCESS_KEY, SECRET_KEY, S3Server, command, free_ports, wait_until_it_writes

_END_SECONDS: Final = 60.0
_PYTHONPATH: Final = os.pathsep.join(place for place in sys.path if place)
"""Where this process finds its modules, for children with another working directory."""


class Program:
    """A child process that is started again with the same command, in a folder of its own."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it is alive; frozen counts."""
        return self._process is not None and self._process.poll() is None

    @property
    def stdin(self) -> IO[bytes]:
        """Where it listens."""
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin

    def start(self) -> None:
        """Start it, and wait for nothing."""
        # A killed soak must not leave a program behind.
        bound_to_us = [setpriv, "--pdeathsig=KILL"] if (setpriv := shutil.which("setpriv")) else []
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*bound_to_us, *self._command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=os.environ | {"HOME": str(self._folder), "TMPDIR": str(self._folder), "PYTHONPATH": _PYTHONPATH},
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would, frozen or not. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_END_SECONDS)
            if self._process.stdin is not None:
                self._process.stdin.close()


class Store(Program):
    """SeaweedFS as an S3 server, with all its data in its folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(5)
        super().__init__(folder, command(folder, ports))
        self._server = S3Server(endpoint=f"http://127.0.0.1:{ports[0]}", checks_keys=True)
        self._url = self._server.new_url()

    def wait(self) -> None:
        """Wait until it has written an object."""
        assert self._process is not None
        wait_until_it_writes(self._server, self._process, self._folder / "log")

    def open_settings(self) -> tuple[str, StoreSettings]:
        """Return what opens it from here."""
        return self._url, self._server.settings()

    def settings(self) -> dict[str, str]:
        """Return the settings that lead the service to it."""
        return {
            "SLACKWATER_STORE_URL": self._url,
            "SLACKWATER_STORE_ENDPOINT": self._server.endpoint,
            "SLACKWATER_STORE_ACCESS_KEY_ID": ACCESS_KEY,
            "SLACKWATER_STORE_SECRET_ACCESS_KEY": SECRET_KEY,
        }


class EngineProgram(Program):
    """One simulated engine with moods."""

    def __init__(self, folder: Path, *, slots: int, seconds_per_token: float) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.record = folder / "record"
        arguments = {"port": port, "record": self.record, "slots": slots, "seconds-per-token": seconds_per_token}
        given = [f"--{name}={value}" for name, value in arguments.items()]
        super().__init__(folder, [sys.executable, "-m", "tests.soak.engine", *given])

    def mood(self, word: str) -> None:
        """Put it in another mood, if it runs."""
        if self.running:
            self.stdin.write(f"{word}\n".encode())
            self.stdin.flush()


class Postgres:
    """PostgreSQL that keeps what it acknowledged. Only for the main thread, as EmbeddedPostgres is."""

    def __init__(self, folder: Path) -> None:
        self._data = folder.resolve() / "data"
        self._server = EmbeddedPostgres(folder, token="s" * 43, max_connections=200)

    @property
    def url(self) -> str:
        """Where it listens, with the password."""
        return self._server.url

    def start(self) -> None:
        """Start it and return when it takes connections."""
        self._server.start()

    def stop(self) -> None:
        """Stop it as an operator would who is in a hurry: clients are cut off."""
        self._server.stop()

    def kill(self) -> None:
        """Kill its first process, which takes all others with it, and return when they are gone."""
        if self._server.pid is None:
            return
        os.kill(self._server.pid, signal.SIGKILL)
        end = time.monotonic() + _END_SECONDS
        while self._server.running or self._left_behind():
            if time.monotonic() > end:
                raise TimeoutError(f"processes of PostgreSQL stay: {self._left_behind()}")
            time.sleep(0.01)

    def _left_behind(self) -> list[int]:
        """Return the processes that still work in its folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    place = (entry / "cwd").readlink()
                except OSError:  # ended meanwhile, or not ours to look at
                    continue
                if place == self._data:
                    found.append(int(entry.name))
        return found
