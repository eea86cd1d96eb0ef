"""Every fault of the simulated engine, in process and over the wire: the same trouble looks the same to the service."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slackwater.domain.errors import EngineReplyTooLarge, EngineTimeout, EngineUnreachable
from slackwater.inference.http_client import HttpLimits
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.protocol import Engine, Reply
from slackwater.inference.simulated import SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_faults import FAULTS, Canned, FaultPlan
from slackwater.inference.simulated_server import serve
from slackwater.inference.simulated_writer import SimulatedModel

MODEL = SimulatedModel(names=("test-model",))
WORKER_REPLIES = Path(__file__).parents[1] / "cases" / "inputs" / "w01_worker_replies.jsonl"
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in map(json.loads, WORKER_REPLIES.read_bytes().splitlines())
}
RAW = {"latin1_bytes", "close_mid_body", "never_answers"}

SLOTS = 4


class Pair:
    """A simulated engine and the way the service reaches it."""

    def __init__(self, behind: SimulatedEngine, engine: Engine) -> None:
        self.behind = behind
        self.engine = engine

    async def post(self, text: str, *, timeout_seconds: float = 10.0) -> Reply:
        body = json.dumps({"model": "test-model", "messages": [{"role": "user", "content": text}], "max_tokens": 4})
        return await self.engine.post("/v1/chat/completions", body.encode(), timeout_seconds=timeout_seconds)


@pytest.fixture(params=["in process", "over HTTP"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    behind = SimulatedEngine(SimulatedSettings(model=MODEL, max_num_seqs=SLOTS))
    if request.param == "in process":
        yield Pair(behind, behind)
        await behind.close()
        return
    server = await serve(behind)
    engine = OpenAIServer(server.url, limits=HttpLimits(max_reply_bytes=1 << 20))
    yield Pair(behind, engine)
    await engine.close()
    await server.close()


@pytest.mark.parametrize("name", sorted(CASES.keys() - RAW))
async def test_each_reply_of_w01_can_be_had_by_name(pair: Pair, name: str) -> None:
    case = CASES[name]

    reply = await pair.post(f"~fault:{name}~")

    assert (reply.status, reply.body.decode()) == (case["status"], case["raw_body"])
    assert reply.retry_after_seconds == (2.0 if name == "429_retry_after_2" else None)


@pytest.mark.parametrize("name", sorted(name for name, fault in FAULTS.items() if isinstance(fault, Canned)))
async def test_each_canned_reply_arrives_as_it_is(pair: Pair, name: str) -> None:
    fault = FAULTS[name]
    assert isinstance(fault, Canned)

    reply = await pair.post(f"~fault:{name}~")

    assert (reply.status, reply.body) == (fault.status, fault.body)


@pytest.mark.parametrize("name", ["close_mid_body", "hang_up"])
async def test_a_connection_that_ends_early_is_an_unreachable_engine(pair: Pair, name: str) -> None:
    with pytest.raises(EngineUnreachable):
        await pair.post(f"~fault:{name}~")

    assert (await pair.post("fine")).status == 200


async def test_silence_ends_at_the_time_limit_and_frees_the_slot(pair: Pair) -> None:
    with pytest.raises(EngineTimeout):
        await pair.post("~fault:never_answers~", timeout_seconds=0.05)

    async with asyncio.timeout(10):
        while pair.behind.slots.running:
            await asyncio.sleep(0)


async def test_bytes_without_an_end_are_cut_at_the_time_limit(pair: Pair) -> None:
    with pytest.raises(EngineTimeout):
        await pair.post("~fault:trickle~", timeout_seconds=0.3)

    async with asyncio.timeout(10):
        while pair.behind.slots.running:
            await asyncio.sleep(0)


async def test_a_flood_is_cut_at_the_size_limit(pair: Pair) -> None:
    with pytest.raises(EngineReplyTooLarge):
        await pair.post("~fault:flood~")

    assert (await pair.post("fine")).status == 200


async def test_an_ill_engine_is_ready_and_gives_everybody_the_same_until_it_is_well(pair: Pair) -> None:
    pair.behind.sicken("out_of_memory_500")
    ill = [await pair.post(f"line {number}") for number in range(3)]
    ready = await pair.engine.ready()
    pair.behind.heal()
    well = await pair.post("line 0")

    assert ready
    assert {reply.status for reply in ill} == {500}
    assert all(b"CUDA out of memory" in reply.body for reply in ill)
    assert well.status == 200


async def test_an_engine_that_hangs_is_ready_and_counts_no_token(pair: Pair) -> None:
    await pair.post("fine")
    before = (await pair.engine.load()).tokens_total
    pair.behind.sicken("never_answers")

    with pytest.raises(EngineTimeout):
        await pair.post("line", timeout_seconds=0.05)

    assert await pair.engine.ready()
    assert (await pair.engine.load()).tokens_total == before is not None


def test_an_illness_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such"):
        SimulatedEngine().sicken("no_such")


async def test_a_fault_for_so_many_times_passes(pair: Pair) -> None:
    replies = [await pair.post("~fault:500*2~") for _ in range(4)]
    once = [await pair.post("~fault:503_then_ok~") for _ in range(2)]

    assert [reply.status for reply in replies] == [500, 500, 200, 200]
    assert [reply.status for reply in once] == [503, 200]


async def test_a_crash_takes_everybody_along_until_the_restart(pair: Pair) -> None:
    # It dies of what it runs: one slot is left for that.
    neighbours = [asyncio.create_task(pair.post("~fault:never_answers~")) for _ in range(SLOTS - 1)]
    async with asyncio.timeout(10):
        while pair.behind.slots.running < SLOTS - 1:
            await asyncio.sleep(0)

    with pytest.raises(EngineUnreachable):
        await pair.post("~fault:crash~")

    for outcome in await asyncio.gather(*neighbours, return_exceptions=True):
        assert isinstance(outcome, EngineUnreachable)
    assert not await pair.engine.ready()
    with pytest.raises(EngineUnreachable):
        await pair.post("fine")
    pair.behind.restart()
    assert await pair.engine.ready()
    assert (await pair.post("fine")).status == 200
    assert (pair.behind.crashes, pair.behind.slots.running) == (1, 0)


async def test_a_crashed_engine_comes_back_by_itself_where_set() -> None:
    engine = SimulatedEngine(SimulatedSettings(model=MODEL, restart_seconds=0.01))
    engine.crash()
    assert not await engine.ready()

    async with asyncio.timeout(10):
        while not engine.is_up:
            await asyncio.sleep(0)
    await engine.close()


async def test_a_plan_deals_the_same_faults_to_the_same_bodies_in_its_shares() -> None:
    async def statuses() -> list[int]:
        plan = FaultPlan(seed=7, shares={"500": 0.2, "429": 0.1})
        pair = Pair(*[SimulatedEngine(SimulatedSettings(model=MODEL, plan=plan))] * 2)
        return [(await pair.post(f"line {number}")).status for number in range(1000)]

    first, second = await statuses(), await statuses()

    assert first == second
    assert first.count(500) == pytest.approx(200, abs=40)
    assert first.count(429) == pytest.approx(100, abs=30)
    assert first.count(200) == 1000 - first.count(500) - first.count(429)


async def test_a_planned_fault_passes_when_the_line_is_tried_again() -> None:
    plan = FaultPlan(seed=7, shares={"500": 0.5})
    engine = SimulatedEngine(SimulatedSettings(model=MODEL, plan=plan))
    pair = Pair(engine, engine)

    for number in range(20):
        assert 200 in [(await pair.post(f"line {number}")).status for _ in range(30)]


def test_a_plan_with_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such"):
        SimulatedEngine(SimulatedSettings(plan=FaultPlan(shares={"no_such": 0.5})))
