"""The simulated engine, in process: as many slots as a real one, its manners, its faults, and no model.

What it says is a pure function of the request (``simulated_answers``); how long it takes is a settable model of prefill
and decode; what goes wrong is marked in bodies or dealt by a seeded plan (``simulated_faults``). It says its name:
its models are ``owned_by: slackwater-simulated``.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final, assert_never

from slackwater.domain.errors import EngineBroke, EngineReplyTooLarge, EngineTimeout, EngineUnreachable
from slackwater.inference.http_connection import retry_after_seconds
from slackwater.inference.protocol import Engine, EngineLoad, Reply, ServedModel
from slackwater.inference.simulated_faults import (
    FAULTS,
    BreakOff,
    Canned,
    Crash,
    Fault,
    FaultPlan,
    Faults,
    Flood,
    HangUp,
    Silence,
    Trickle,
)
from slackwater.inference.simulated_slots import Slots
from slackwater.inference.simulated_writer import Answer, SimulatedModel, Writer

OWNER: Final = "slackwater-simulated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """How long a request holds its slot: prefill, then decode. All zero answers at once."""

    prefill_seconds_per_token: float = 0.0
    decode_seconds_per_token: float = 0.0

    def seconds(self, answer: Answer) -> float:
        """Return the time one answer takes."""
        return (
            answer.prompt_tokens * self.prefill_seconds_per_token + answer.output_tokens * self.decode_seconds_per_token
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedSettings:
    """How a simulated engine behaves."""

    model: SimulatedModel = field(default_factory=SimulatedModel)
    max_num_seqs: int = 256
    """Slots: requests that run at once; the rest wait in the order they came."""
    latency: Latency = field(default_factory=Latency)
    plan: FaultPlan | None = None
    crash_seconds: float = 0.0
    """How long a request that kills it runs before it does."""
    restart_seconds: float | None = None
    """How long it stays away after a crash; None until ``restart`` is called."""
    knows_priority: bool = False


class SimulatedEngine(Engine):
    """The engine itself. Belongs to one event loop; see the protocol for what is promised."""

    def __init__(self, settings: SimulatedSettings | None = None) -> None:
        self.settings: Final = settings or SimulatedSettings()
        self.slots: Final = Slots(self.settings.max_num_seqs)
        self.answered = 0
        """Requests answered so far, refusals included."""
        self.crashes = 0
        self._writer = Writer(self.settings.model)
        self._faults = Faults(self.settings.plan)
        self._instant = self.settings.latency == Latency()
        self._away = False
        self._closed = False
        self._restart: asyncio.TimerHandle | None = None

    @property
    def knows_priority(self) -> bool:
        """As set."""
        return self.settings.knows_priority

    @property
    def is_up(self) -> bool:
        """Whether it takes requests: not crashed, not closed."""
        return not (self._away or self._closed)

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        """See the protocol. An engine without latency answers without waiting."""
        work = self.take(path, body)
        if isinstance(work, Reply):
            return work
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self.finish(work)
        except TimeoutError as error:
            raise EngineTimeout("The engine gave no whole answer within the time limit of one request.") from error

    def take(self, path: str, body: bytes) -> Reply | Answer | Fault:
        """Take a request in: the reply where it is there at once, else what ``finish`` makes one of.

        Raises EngineUnreachable while the engine is down.
        """
        if self._away or self._closed:
            raise _down()
        fault = self._faults.deal(body)
        if fault is not None:
            return fault
        answer = self._writer.answer(path, body)
        if not self._instant or self.slots.running >= self.slots.count:
            return answer
        self.answered += 1
        return answer.reply

    async def finish(self, work: Answer | Fault) -> Reply:
        """Wait for a slot, and in it for the answer; cancelling frees the slot.

        Raises EngineUnreachable and EngineReplyTooLarge.
        """
        match work:
            case Answer():
                await self.slots.hold(self.settings.latency.seconds(work))
                reply = work.reply
            case Canned():
                await self.slots.hold(0.0)
                pause = work.headers.get("retry-after")
                reply = Reply(work.status, work.body, None if pause is None else retry_after_seconds(pause.encode()))
            case Silence() | Trickle():
                await self.slots.hold(None)
                raise AssertionError("held for ever")
            case Flood():
                await self.slots.hold(0.0)
                raise EngineReplyTooLarge("The engine's answer has no end.")
            case BreakOff() | HangUp():
                await self.slots.hold(0.0)
                raise _broken()
            case Crash():
                # It dies of a request that it runs, not of one that it is sent.
                await self.slots.hold(self.settings.crash_seconds)
                self.crash()
                raise _broken()
            case _:
                assert_never(work)
        self.answered += 1
        return reply

    async def models(self) -> list[ServedModel]:
        """See the protocol."""
        if not self.is_up:
            raise _down()
        model = self.settings.model
        return [ServedModel(name=name, max_model_len=model.max_model_len) for name in model.names]

    async def ready(self) -> bool:
        """See the protocol."""
        return self.is_up

    async def load(self) -> EngineLoad:
        """See the protocol; the KV cache is as full as the slots are."""
        if not self.is_up:
            raise _down()
        slots = self.slots
        share = slots.running / slots.count
        return EngineLoad(
            running=slots.running,
            waiting=slots.waiting,
            kv_cache_usage=share,
            preemptions_total=0,
            tokens_total=self.answered,
        )

    async def revive(self) -> None:
        """See the protocol: it dies, and comes back as it does after any crash."""
        self.crash()

    def sicken(self, fault: str) -> None:
        """Meet every request from here on with the fault of this name, ready as ever; what is in flight goes on.

        Raises KeyError for a name that no fault has.
        """
        self._faults.illness = FAULTS[fault]

    def heal(self) -> None:
        """Be well again; what hangs goes on hanging."""
        self._faults.illness = None

    def crash(self) -> None:
        """Die: everything in flight is lost, nothing is taken in before the restart. One that is down stays so."""
        if self._away:
            return
        self.crashes += 1
        self._away = True
        self.slots.break_off(_broken())
        if self.settings.restart_seconds is not None:
            loop = asyncio.get_running_loop()
            self._restart = loop.call_later(self.settings.restart_seconds, self.restart)

    def restart(self) -> None:
        """Come back, empty."""
        self._away = False

    async def close(self) -> None:
        """See the protocol; what is in flight ends with EngineUnreachable."""
        self._closed = True
        self.slots.break_off(_broken())
        if self._restart is not None:
            self._restart.cancel()


def _broken() -> EngineBroke:
    return EngineBroke("The engine closed the connection before its answer was complete.")


def _down() -> EngineUnreachable:
    return EngineUnreachable("The engine cannot be reached now.")
