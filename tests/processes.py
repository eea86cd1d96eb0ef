"""The service as real processes: every role as a child, set up by settings alone, as on a site."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Processes:
    """Children of one site. ``environment`` holds the settings that all of them share."""

    environment: dict[str, str]
    logs: Path
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)
    api_port: int = field(default_factory=free_port)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}/v1"

    def call(self, *arguments: str) -> str:
        """Run one command to its end and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "slackwater", *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def prepare(self, *, model: str | None = None, alias: str | None = None) -> str:
        """Migrate, make a tenant and, where named, a model with an alias; return the tenant's key."""
        self.call("migrate")
        self.call("tenant", "create", "acme")
        if model is not None:
            self.call("model", "add", model)
            if alias is not None:
                self.call("model", "alias", alias, model)
        return self.call("key", "create", "acme").strip()

    def start(self, role: str, name: str | None = None, **settings: str) -> None:
        """Start a role and wait until its probe says that it is alive."""
        name = name or role
        self.spawn(role, name, **settings)
        port = self.api_port if role == "api" else self.probes[name]
        self.wait(f"http://127.0.0.1:{port}/healthz")

    def spawn(self, role: str, name: str, **settings: str) -> None:
        """Start a role, or start it again at its port, and wait for nothing."""
        port = self.probes.setdefault(name, free_port())
        more = {"SLACKWATER_PROBE_PORT": str(port), "SLACKWATER_API_PORT": str(self.api_port)}
        more |= {f"SLACKWATER_{key.upper()}": value for key, value in settings.items()}
        with (self.logs / f"{name}.log").open("ab") as log:
            self.children[name] = subprocess.Popen(
                # A killed test run must leave nobody behind.
                [sys.executable, "-m", "slackwater", role, "--supervisor", str(os.getpid())],
                env=os.environ | self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self, url: str, seconds: float = 60.0) -> None:
        """Wait until a URL answers 200."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(httpx2.HTTPError):
                if httpx2.get(url, timeout=2).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{url} does not answer; logs in {self.logs}")

    def kill(self, name: str) -> None:
        """End a child as a power cut would."""
        self.children[name].kill()
        self.children[name].wait()

    def stop(self) -> None:
        """Ask every child to end; none may need to be killed."""
        for child in reversed(self.children.values()):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        stubborn = []
        for name, child in self.children.items():
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                stubborn.append(name)
        assert not stubborn, f"these do not end on SIGTERM: {stubborn}"


@contextlib.contextmanager
def running(environment: dict[str, str], logs: Path) -> Iterator[Processes]:
    """Own the children of one site; they end with the block."""
    processes = Processes(environment=environment, logs=logs)
    try:
        yield processes
    finally:
        processes.stop()
