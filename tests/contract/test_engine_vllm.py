"""The contract of engines, kept by a real vLLM."""

import json
from collections.abc import AsyncIterator

import pytest

from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.vllm import Vllm
from tests.contract.engine_suite import EngineSuite, Subject
from tests.engines import TINY_CONTEXT_TOKENS, TINY_MODEL_NAMES


class TestVllm(EngineSuite):
    """One server for the session; each test has a client of its own, which it may close."""

    @pytest.fixture
    async def subject(self, vllm: Vllm) -> AsyncIterator[Subject]:
        assert vllm.base_url is not None
        model = TINY_MODEL_NAMES[0]
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Count."}],
            "max_tokens": TINY_CONTEXT_TOKENS - 100,
            "ignore_eos": True,
        }
        engine = OpenAIServer(vllm.base_url)
        endless = json.dumps(body).encode()
        yield Subject(engine=engine, model=model, max_model_len=TINY_CONTEXT_TOKENS, endless=endless)
        await engine.close()
