"""The supervisor of ``slackwater up``: the roles as child processes, started again when they die, ended together.

Each child leads a process group of its own and asks the kernel to end it with us, so that neither a Ctrl-C at the
terminal nor a killed supervisor takes them down in the wrong order or leaves one behind.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

_LOG: Final = structlog.get_logger("slackwater.up")
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 15.0
_STEADY_SECONDS: Final = 60.0
"""A child that lived this long starts with a clean record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """One child: ``slackwater NAME`` with its settings in the environment."""

    name: str
    environment: Mapping[str, str]
    log: Path
    stop_seconds: float
    """How long it may take to end by itself once asked."""


class Child:
    """One supervised role."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def supervise(self) -> None:
        """Keep the role running until :meth:`stop`; starts that fail are repeated, each later than the one before."""
        pause = _FIRST_PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while not self._stopping:
            started = loop.time()
            self._process = await self._start()
            code = await self._process.wait()
            if self._told_to_stop():
                return
            if loop.time() - started > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            _LOG.error(
                "role ended", role=self.role.name, exit_code=code, again_in_seconds=pause, log=str(self.role.log)
            )
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _told_to_stop(self) -> bool:
        """Ask again: :meth:`stop` runs while :meth:`supervise` waits."""
        return self._stopping

    async def _start(self) -> asyncio.subprocess.Process:
        """Start the role; what it logs is appended to its file."""
        with self.role.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "slackwater",
                self.role.name,
                "--supervisor",
                str(os.getpid()),
                env=dict(self.role.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def stop(self) -> None:
        """Ask the role to end, wait, and kill what does not."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.role.stop_seconds):
                await process.wait()
        except TimeoutError:
            _LOG.error("role does not end and is killed", role=self.role.name)
            process.kill()
            await process.wait()
