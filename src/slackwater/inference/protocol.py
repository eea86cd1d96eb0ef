"""What an engine is to the rest of the service: something that answers one request body at a time.

The feeder (``flow/work``) keeps as many calls of :meth:`Engine.post` open as the engine has slots and a few more;
cancelling such a call must free the engine's slot. Implementations: the OpenAI-compatible server over HTTP
(``openai_server``), vLLM as a supervised child (``vllm``), the simulated engine (``simulated``).
One contract suite, ``tests/contract/engine_suite.py``, holds for all of them.
"""

from dataclasses import dataclass
from typing import Protocol

from slackwater.domain.replies import Reply

__all__ = ["Engine", "EngineLoad", "Reply", "ServedModel"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """One name that the engine answers to."""

    name: str
    max_model_len: int | None
    """Longest prompt plus output in tokens; None where the engine does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineLoad:
    """A snapshot of the engine's own gauges; None where this engine has no such gauge."""

    running: int | None
    waiting: int | None
    kv_cache_usage: float | None
    """Share of the KV cache in use, 0 to 1."""
    preemptions_total: int | None
    tokens_total: int | None = None
    """Tokens read and written since it started: while requests run and this stands still, the engine hangs."""


class Engine(Protocol):
    """An inference engine that is up or may come up."""

    @property
    def knows_priority(self) -> bool:
        """Whether the engine understands vLLM's ``priority`` and ``cache_salt`` keys in a body."""
        ...

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        """Send one JSON body to ``path`` (``/v1/chat/completions``) and return the whole answer.

        Raises EngineUnreachable (EngineBroke where the request was sent), EngineTimeout and EngineReplyTooLarge.
        Never retries, never follows a redirect. May come back without having waited: a caller in a loop yields itself.
        Cancelling the call aborts the request in the engine.
        """
        ...

    async def models(self) -> list[ServedModel]:
        """Return the names the engine serves now. Raises EngineUnreachable."""
        ...

    async def ready(self) -> bool:
        """Tell whether requests may be sent now. Never raises."""
        ...

    async def load(self) -> EngineLoad:
        """Read the engine's gauges. Raises EngineUnreachable."""
        ...

    async def revive(self) -> None:
        """Start the engine anew because it hangs, where it is ours to start; else do nothing.

        Requests in flight break off. Returns before it is ready again.
        """
        ...

    async def close(self) -> None:
        """Release every resource; a supervised engine is stopped, its whole process group with it. Idempotent."""
        ...
