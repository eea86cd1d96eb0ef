"""Real vLLM as our child: answers, priorities, a freed slot, a dead engine core, and nothing left behind."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from slackwater.inference.protocol import EngineLoad
from slackwater.inference.vllm import Vllm
from tests.engines import TINY_CONTEXT_TOKENS, TINY_MODEL_NAMES, processes_in

pytestmark = pytest.mark.asyncio(loop_scope="session")
CHAT = "/v1/chat/completions"
START_SECONDS = 300.0
"""Two imports of vLLM on a busy machine."""


def chat(content: str, **more: object) -> bytes:
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 16}
    return json.dumps(body | more).encode()


async def answer(vllm: Vllm, content: str, **more: object) -> str:
    reply = await vllm.post(CHAT, chat(content, **more), timeout_seconds=60)
    assert reply.status == 200, reply.body
    text: str = json.loads(reply.body)["choices"][0]["message"]["content"]
    return text


async def load_when(vllm: Vllm, holds: Callable[[EngineLoad], bool]) -> EngineLoad:
    """Return the first load that meets a condition; fails after 20 s."""
    async with asyncio.timeout(20):
        while not holds(load := await vllm.load()):
            await asyncio.sleep(0.05)
    return load


@pytest_asyncio.fixture(loop_scope="session")
async def busy(vllm: Vllm) -> AsyncIterator[asyncio.Task[object]]:
    """A call that would take the engine far longer than any test."""
    body = chat("count", max_tokens=1900, ignore_eos=True)
    task: asyncio.Task[object] = asyncio.create_task(vllm.post(CHAT, body, timeout_seconds=600))
    await load_when(vllm, lambda load: load.running == 1)
    yield task
    task.cancel()
    await load_when(vllm, lambda load: load.running == 0)


async def test_greedy_answers_are_the_same_alone_and_in_a_crowd(vllm: Vllm) -> None:
    prompts = [f"question number {number} about the weather" for number in range(24)]
    alone = [await answer(vllm, prompt) for prompt in prompts[:3]]
    crowd = await asyncio.gather(*(answer(vllm, prompt) for prompt in prompts))
    assert alone == crowd[:3]
    assert len(set(crowd)) > 12


async def test_it_lists_its_names_and_its_longest_context(vllm: Vllm) -> None:
    models = await vllm.models()
    assert {model.name for model in models} == set(TINY_MODEL_NAMES)
    assert {model.max_model_len for model in models} == {TINY_CONTEXT_TOKENS}


async def test_priority_is_understood(vllm: Vllm) -> None:
    assert vllm.knows_priority
    assert await answer(vllm, "hello", priority=5) == await answer(vllm, "hello", priority=-5)


async def test_a_request_that_cannot_be_is_the_requests_error_alone(vllm: Vllm) -> None:
    roles = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    refused = await vllm.post(CHAT, chat("", messages=roles), timeout_seconds=60)
    assert refused.status == 400
    assert b"roles must alternate" in refused.body
    too_long = await vllm.post(CHAT, chat("word " * 3000), timeout_seconds=60)
    assert too_long.status == 400
    unknown = await vllm.post(CHAT, chat("a", model="other"), timeout_seconds=60)
    assert unknown.status == 404
    assert await vllm.ready()


async def test_cancelling_a_call_frees_its_slot(vllm: Vllm, busy: asyncio.Task[object]) -> None:
    busy.cancel()
    load = await load_when(vllm, lambda load: load.running == 0)
    assert load.waiting == 0
    with pytest.raises(asyncio.CancelledError):
        await busy


async def test_no_prompt_and_no_answer_is_in_the_log(vllm: Vllm) -> None:
    words = "zebra quagga okapi"
    text = await answer(vllm, words)
    await vllm.post(CHAT, chat("", messages=[{"role": words, "content": {words: 1}}]), timeout_seconds=60)
    await vllm.post(CHAT, chat(words, structured_outputs={"regex": f"({words}["}), timeout_seconds=60)
    log = vllm.log.read_text()
    assert "zebra" not in log
    assert text not in log


async def test_a_dead_engine_core_is_replaced_and_answers_as_before(vllm: Vllm, busy: asyncio.Task[object]) -> None:
    group = vllm.group
    assert group is not None
    before = await answer(vllm, "hello")
    (core,) = (pid for pid, name in processes_in(group).items() if "EngineCor" in name)

    os.kill(core, signal.SIGKILL)
    await asyncio.wait((busy,))
    while vllm.group == group:
        await asyncio.sleep(0.05)
    await asyncio.wait_for(vllm.wait_ready(), START_SECONDS)

    assert not processes_in(group)
    assert await answer(vllm, "hello") == before
