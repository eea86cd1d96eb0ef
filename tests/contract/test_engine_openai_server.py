"""The OpenAI-compatible client before servers of other makes: no health page, no gauges, odd lists of models."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from slackwater.domain.errors import EngineUnreachable
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.protocol import EngineLoad, ServedModel

Page = tuple[int, str]
Serve = Callable[..., Awaitable[OpenAIServer]]
MODELS = '{"object":"list","data":[{"id":"m","object":"model","owned_by":"somebody"}]}'


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def begin(**pages: Page) -> OpenAIServer:
        application = web.Application()

        async def answer(request: web.Request) -> web.Response:
            status, text = pages.get(request.path.rpartition("/")[2], (404, "no such page"))
            headers = {"Location": "/elsewhere"} if status == 307 else None
            return web.Response(status=status, text=text, headers=headers)

        application.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(application)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        return OpenAIServer(f"http://{host}:{port}/v1")

    yield begin
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    "pages",
    [
        {"health": (200, ""), "models": (200, MODELS)},
        {"models": (200, MODELS)},
        {"health": (405, ""), "models": (200, MODELS)},
    ],
)
async def test_an_engine_that_lists_a_model_and_does_not_say_it_is_ill_is_ready(
    serve: Serve, pages: dict[str, Page]
) -> None:
    engine = await serve(**pages)

    assert await engine.ready()
    await engine.close()


@pytest.mark.parametrize(
    "pages",
    [
        {"health": (503, ""), "models": (200, MODELS)},
        {"health": (307, ""), "models": (200, MODELS)},
        {"health": (200, ""), "models": (401, "{}")},
        {"health": (200, ""), "models": (200, '{"data":[]}')},
        {"health": (200, ""), "models": (200, "<html>")},
        {"health": (200, "")},
        {},
    ],
)
async def test_an_engine_that_is_ill_or_has_no_model_for_us_is_not_ready(serve: Serve, pages: dict[str, Page]) -> None:
    engine = await serve(**pages)

    assert not await engine.ready()
    await engine.close()


async def test_models_are_read_whatever_else_the_list_says(serve: Serve) -> None:
    listed = (
        '{"data":[{"id":"a","max_model_len":4096},{"id":"b","max_model_len":null,"meta":{}},{"object":"model"}],"x":1}'
    )
    engine = await serve(models=(200, listed))

    assert await engine.models() == [
        ServedModel(name="a", max_model_len=4096),
        ServedModel(name="b", max_model_len=None),
    ]
    assert not engine.knows_priority
    await engine.close()


async def test_vllm_is_recognised_by_what_it_owns(serve: Serve) -> None:
    engine = await serve(models=(200, MODELS.replace("somebody", "vllm")))
    before = engine.knows_priority

    await engine.models()

    assert (before, engine.knows_priority) == (False, True)
    await engine.close()


async def test_an_engine_without_gauges_has_no_load(serve: Serve) -> None:
    engine = await serve()

    assert await engine.load() == EngineLoad(running=None, waiting=None, kv_cache_usage=None, preemptions_total=None)
    await engine.close()


async def test_a_gauge_that_is_no_number_is_an_unreachable_engine(serve: Serve) -> None:
    engine = await serve(metrics=(200, "vllm:num_requests_running many\n"))

    with pytest.raises(EngineUnreachable, match="metrics"):
        await engine.load()
    await engine.close()


async def test_a_page_of_absurd_size_is_not_read_to_its_end(serve: Serve) -> None:
    engine = await serve(metrics=(200, "#" * (17 * 1024 * 1024)))

    with pytest.raises(EngineUnreachable, match="larger"):
        await engine.load()
    await engine.close()


async def test_nobody_there_is_unreachable_and_not_ready() -> None:
    engine = OpenAIServer("http://127.0.0.1:1")

    assert not await engine.ready()
    with pytest.raises(EngineUnreachable):
        await engine.models()
    with pytest.raises(EngineUnreachable):
        await engine.load()
    await engine.close()
