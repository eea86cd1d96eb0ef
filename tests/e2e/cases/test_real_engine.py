"""The cases that a real engine decides, on vLLM with the tiny model: the same checks as on the simulated one."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.vllm import Vllm
from tests.cases.engine_cases import (
    check_bad_types,
    check_chat_templates,
    check_long_prompt,
    check_media_parts,
    check_remote_media,
    check_too_many_tokens,
)
from tests.cases.marks import case
from tests.cases.recording import RecordingEngine
from tests.cases.site import Site, running_site
from tests.engines import TINY_MODEL_NAMES

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL: Final = TINY_MODEL_NAMES[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vllm_site(
    vllm: Vllm, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A site whose one worker feeds the session's vLLM."""
    assert vllm.base_url is not None
    engine = OpenAIServer(vllm.base_url)
    folder = tmp_path_factory.mktemp("vllm-site")
    async with running_site(module_database_url, folder, engines=[RecordingEngine(engine)]) as site:
        yield site
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def real(vllm_site: Site) -> AsyncIterator[Site]:
    """The site, its record begun anew; afterwards its engine must still answer."""
    vllm_site.engine.forget()
    yield vllm_site
    assert await vllm_site.engine.ready()
    assert (vllm_site.server_errors(), vllm_site.stage_errors()) == ({}, {})


@case("V10")
async def test_an_odd_parameter_ends_as_vllm_answers_it_alone(real: Site) -> None:
    await check_bad_types(real, real.engine, MODEL)


@case("V11")
async def test_a_bound_on_the_answer_that_cannot_fit_is_that_lines_error(real: Site) -> None:
    await check_too_many_tokens(real, MODEL)


@case("V11")
async def test_a_prompt_that_cannot_fit_is_that_lines_error(real: Site) -> None:
    await check_long_prompt(real, MODEL)


@case("Z01", "Z04")
async def test_media_from_elsewhere_are_refused_before_vllm_sees_them(real: Site) -> None:
    await check_remote_media(real, real.engine, MODEL)


@case("Z04")
async def test_files_of_the_engines_machine_are_refused_in_every_part_that_holds_media(real: Site) -> None:
    await check_media_parts(real, real.engine, MODEL)


@case("Z10")
async def test_a_chat_template_of_the_customers_never_reaches_vllm(real: Site) -> None:
    await check_chat_templates(real, real.engine, MODEL)
