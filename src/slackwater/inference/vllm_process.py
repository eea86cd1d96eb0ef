"""One life of vLLM's server: from a command to the end of its last process."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from slackwater.domain.errors import SetupError
from slackwater.inference import vllm_guard

_GRACE_SECONDS: Final = 10.0
"""What vLLM gets from the polite request to the kill; it needs two or three."""
_GUARD_SECONDS: Final = _GRACE_SECONDS + 5.0
_TAIL_BYTES: Final = 4000


class VllmProcess:
    """The guard, and behind it vLLM: one process group."""

    def __init__(self, guard: asyncio.subprocess.Process) -> None:
        self._guard = guard

    @classmethod
    async def start(cls, python: Path, arguments: Sequence[str], *, environment: Mapping[str, str], log: Path) -> Self:
        """Start the engine's interpreter with these arguments. Raises SetupError where that cannot be."""
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            guard = await asyncio.create_subprocess_exec(
                python,
                *("-I", "-S", vllm_guard.__file__, str(log), str(_GRACE_SECONDS), str(python), *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"the engine's interpreter {python} cannot be started: {error.strerror}") from error
        return cls(guard)

    @property
    def group(self) -> int:
        """The process group of everything that belongs to this engine."""
        return self._guard.pid

    async def ended(self) -> int:
        """Wait until all its processes have gone and return the exit code."""
        code = await self._guard.wait()
        self._kill_what_is_left()
        return code

    def kill(self) -> None:
        """End all of it at once, without a word: for one that hangs. :meth:`ended` returns soon after."""
        self._kill_what_is_left()

    async def stop(self) -> None:
        """End it: politely for ten seconds, then with SIGKILL. Idempotent."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._guard.wait(), _GUARD_SECONDS)
        self._kill_what_is_left()
        await self._guard.wait()

    def _kill_what_is_left(self) -> None:
        # Something is left where the guard itself was killed. A group's number is not given away while it has members.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._guard.pid, signal.SIGKILL)


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def last_lines(log: Path) -> str:
    """Return the end of a log, for an operator."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
