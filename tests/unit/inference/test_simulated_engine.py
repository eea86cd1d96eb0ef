"""The simulated engine's time and slots."""

import asyncio
import json

import pytest

from slackwater.domain.errors import EngineTimeout
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_writer import Answer, SimulatedModel

MODEL = SimulatedModel(names=("test-model",))


def body(text: str, *, max_tokens: int = 4) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps(
        {"model": "test-model", "messages": [message], "max_tokens": max_tokens, "ignore_eos": True}
    ).encode()


def test_time_is_prefill_and_decode() -> None:
    latency = Latency(prefill_seconds_per_token=0.001, decode_seconds_per_token=0.1)
    engine = SimulatedEngine(SimulatedSettings(model=MODEL, latency=latency))

    work = engine.take("/v1/chat/completions", body("x" * 400, max_tokens=7))

    assert isinstance(work, Answer)
    assert latency.seconds(work) == pytest.approx(0.001 * work.prompt_tokens + 0.7)
    assert work.prompt_tokens >= 100


async def test_an_engine_without_latency_answers_without_waiting() -> None:
    engine = SimulatedEngine(SimulatedSettings(model=MODEL))
    call = engine.post("/v1/chat/completions", body("hi"), timeout_seconds=1)

    with pytest.raises(StopIteration) as answered:
        call.send(None)

    assert answered.value.value.status == 200
    assert engine.answered == 1


async def test_slots_bound_what_runs_and_the_rest_waits() -> None:
    settings = SimulatedSettings(model=MODEL, max_num_seqs=3, latency=Latency(decode_seconds_per_token=0.001))
    engine = SimulatedEngine(settings)
    calls = [
        asyncio.create_task(engine.post("/v1/chat/completions", body(str(number)), timeout_seconds=10))
        for number in range(12)
    ]
    await asyncio.sleep(0)

    load = await engine.load()

    assert (load.running, load.waiting, load.kv_cache_usage) == (3, 9, 1.0)
    assert {reply.status for reply in await asyncio.gather(*calls)} == {200}
    assert (engine.slots.peak, engine.answered) == (3, 12)


async def test_waiting_for_a_slot_counts_against_the_time_limit() -> None:
    engine = SimulatedEngine(SimulatedSettings(model=MODEL, max_num_seqs=1))
    hog = asyncio.create_task(engine.post("/v1/x", body("~fault:never_answers~"), timeout_seconds=10))
    await asyncio.sleep(0)

    with pytest.raises(EngineTimeout):
        await engine.post("/v1/chat/completions", body("hi"), timeout_seconds=0.02)

    hog.cancel()
    await asyncio.gather(hog, return_exceptions=True)
    assert engine.slots.running == 0
