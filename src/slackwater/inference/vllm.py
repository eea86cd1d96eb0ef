"""vLLM as a child that we keep alive: started, awaited, restarted when it dies, and ended with all its processes.

Every life of it has a port and an HTTP client of its own; a call that outlives its engine fails with
EngineUnreachable, never reaches the next one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from slackwater.domain.errors import EngineUnreachable, SetupError
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.protocol import Engine, EngineLoad, Reply, ServedModel
from slackwater.inference.vllm_process import VllmProcess, free_port, last_lines
from slackwater.inference.vllm_restarts import RestartPolicy, VllmEvents
from slackwater.inference.vllm_settings import VllmSettings

_LOG: Final = structlog.get_logger("slackwater.engine")
_READY_POLL_SECONDS: Final = 0.2

Connect = Callable[[str, str | None], Engine]
"""Makes the HTTP engine for a base URL and an API key."""


class Vllm(Engine):
    """A vLLM server of our own. Use from one event loop, whose thread must not end before ``close``."""

    def __init__(
        self,
        settings: VllmSettings,
        *,
        python: Path,
        log: Path,
        environment: Mapping[str, str],
        policy: RestartPolicy | None = None,
        events: VllmEvents | None = None,
        connect: Connect | None = None,
    ) -> None:
        """Describe an engine; nothing runs before :meth:`start`.

        ``python``: the interpreter of the engine's environment. ``log``: takes what vLLM says, rotated at 8 MiB.
        ``environment``: ours, of which vLLM gets what it understands.
        """
        self._settings = settings
        self._python = python
        self.log: Final = log
        self._environment = settings.environment(environment)
        self._policy = policy or RestartPolicy()
        self._events = events or VllmEvents()
        self._connect: Connect = connect or (lambda url, key: OpenAIServer(url, api_key=key))
        self._server: Engine | None = None
        self._up = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._process: VllmProcess | None = None
        self._port = 0

    @property
    def knows_priority(self) -> bool:
        """True: the scheduling policy that heeds it is on."""
        return True

    @property
    def group(self) -> int | None:
        """The process group of the engine that lives now, None between two lives."""
        return self._process.group if self._process is not None else None

    @property
    def base_url(self) -> str | None:
        """Where the engine that is ready now listens; each restart moves it. None while none is ready."""
        return f"http://127.0.0.1:{self._port}" if self._server is not None else None

    def start(self) -> None:
        """Begin to keep an engine alive, in the background. Idempotent."""
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._keep_alive(), name="vllm")

    async def wait_ready(self) -> None:
        """Return when requests may be sent. Raises SetupError, with the end of vLLM's log, if it cannot start."""
        if self._supervisor is None:
            raise SetupError("the engine was not started")
        up = asyncio.create_task(self._up.wait())
        try:
            await asyncio.wait((up, self._supervisor), return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
        if self._supervisor.cancelled():
            raise SetupError("the engine was closed while it was loading")
        if self._supervisor.done():
            self._supervisor.result()

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        """See the protocol; EngineUnreachable also while the engine is loading."""
        return await self._alive().post(path, body, timeout_seconds=timeout_seconds)

    async def models(self) -> list[ServedModel]:
        """See the protocol."""
        return await self._alive().models()

    async def ready(self) -> bool:
        """See the protocol."""
        return self._server is not None and await self._server.ready()

    async def load(self) -> EngineLoad:
        """See the protocol."""
        return await self._alive().load()

    async def revive(self) -> None:
        """See the protocol: it is killed, and started again like one that died."""
        if self._process is not None:
            self._process.kill()

    async def close(self) -> None:
        """End the engine with all its processes. Idempotent."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)

    def _alive(self) -> Engine:
        if self._server is None:
            raise EngineUnreachable("The engine is loading or restarting.")
        return self._server

    async def _keep_alive(self) -> None:
        clock = asyncio.get_running_loop()
        deaths_in_a_row, was_ever_ready = 0, False
        while True:
            ready_at = await self._live_once()
            was_ever_ready |= ready_at is not None
            settled = ready_at is not None and clock.time() - ready_at >= self._policy.settled_seconds
            deaths_in_a_row = 1 if settled else deaths_in_a_row + 1
            if not was_ever_ready and deaths_in_a_row >= self._policy.starts_before_giving_up:
                raise SetupError(f"vLLM does not start; the end of {self.log}:\n{last_lines(self.log)}")
            pause = self._policy.pause(deaths_in_a_row)
            _LOG.warning("engine_died", deaths_in_a_row=deaths_in_a_row, pause_seconds=pause, log=str(self.log))
            self._events.died(last_lines(self.log))
            await asyncio.sleep(pause)

    async def _live_once(self) -> float | None:
        """Run one engine to its end; return the loop's time when it became ready, None if it never did."""
        clock = asyncio.get_running_loop()
        started_at = clock.time()
        async with self._life() as (server, end):
            if not await self._becomes_ready(server, end):
                return None
            ready_at = clock.time()
            self._server = server
            self._up.set()
            _LOG.info("engine_ready", seconds=round(ready_at - started_at, 1), model=self._settings.model)
            self._events.ready(ready_at - started_at)
            await asyncio.wait((end,))
            return ready_at

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[tuple[Engine, asyncio.Task[int]]]:
        """Start an engine; leaving the block ends whatever is left of it."""
        self._port = port = free_port()
        arguments = self._settings.arguments(port)
        self._process = process = await VllmProcess.start(
            self._python, arguments, environment=self._environment, log=self.log
        )
        server = self._connect(f"http://127.0.0.1:{port}", self._settings.api_key)
        end = asyncio.create_task(process.ended())
        try:
            yield server, end
        finally:
            self._up.clear()
            self._server = None
            await process.stop()
            await end
            self._process = None
            await server.close()

    async def _becomes_ready(self, server: Engine, end: asyncio.Task[int]) -> bool:
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._policy.start_timeout_seconds
        while clock.time() < deadline:
            if await server.ready():
                return True
            await asyncio.wait((end,), timeout=_READY_POLL_SECONDS)
            if end.done():
                return False
        _LOG.warning("engine_start_timed_out", seconds=self._policy.start_timeout_seconds)
        return False
