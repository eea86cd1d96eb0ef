"""The engine contract on the simulated engine: in process, and as a server behind the OpenAI-compatible client."""

from collections.abc import AsyncIterator

import pytest

from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.simulated import SimulatedEngine, SimulatedSettings
from slackwater.inference.simulated_server import SimulatedServer, serve
from slackwater.inference.simulated_writer import SimulatedModel
from tests.contract.engine_suite import EngineSuite, Subject

MODEL = "test-model"
SETTINGS = SimulatedSettings(model=SimulatedModel(names=(MODEL, "other-model"), max_model_len=2048), max_num_seqs=16)
ENDLESS = b'{"model":"test-model","messages":[{"role":"user","content":"~fault:never_answers~"}],"max_tokens":8}'


class TestSimulatedEngine(EngineSuite):
    @pytest.fixture
    async def subject(self) -> AsyncIterator[Subject]:
        engine = SimulatedEngine(SETTINGS)
        yield Subject(engine=engine, model=MODEL, max_model_len=2048, endless=ENDLESS)
        await engine.close()

    async def test_it_knows_priority_only_if_set(self) -> None:
        assert not SimulatedEngine(SETTINGS).knows_priority
        assert SimulatedEngine(SimulatedSettings(knows_priority=True)).knows_priority


class TestOpenAIServer(EngineSuite):
    @pytest.fixture
    async def server(self) -> AsyncIterator[SimulatedServer]:
        server = await serve(SimulatedEngine(SETTINGS), api_key="sk-engine")
        yield server
        await server.close()

    @pytest.fixture
    async def subject(self, server: SimulatedServer) -> AsyncIterator[Subject]:
        engine = OpenAIServer(server.url, api_key="sk-engine")
        yield Subject(engine=engine, model=MODEL, max_model_len=2048, endless=ENDLESS)
        await engine.close()

    async def test_a_base_url_may_end_in_v1(self, server: SimulatedServer) -> None:
        engine = OpenAIServer(server.url + "/v1/", api_key="sk-engine")

        assert await engine.ready()
        assert (await engine.post("/v1/completions", b"{}", timeout_seconds=5)).status == 400
        await engine.close()

    async def test_an_engine_that_refuses_our_key_is_not_ready(self, server: SimulatedServer) -> None:
        engine = OpenAIServer(server.url, api_key="wrong")

        assert not await engine.ready()
        assert (await engine.post("/v1/completions", b"{}", timeout_seconds=5)).status == 401
        await engine.close()

    async def test_a_simulated_engine_is_not_taken_for_vllm(self, subject: Subject) -> None:
        await subject.engine.models()
        await subject.engine.load()

        assert not subject.engine.knows_priority
