"""How a vLLM child is kept alive, with a stand-in that starts at once and fails on demand."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slackwater.domain.errors import EngineUnreachable, SetupError
from slackwater.inference.vllm import Vllm
from slackwater.inference.vllm_restarts import RestartPolicy, VllmEvents
from slackwater.inference.vllm_settings import VllmSettings
from tests.engines import processes_in

SETTINGS = VllmSettings(model="org/model", served_model_names=("fake",), on_cpu=True, api_key="secret-of-the-port")
QUICK = RestartPolicy(first_seconds=0.01, starts_before_giving_up=2)
Start = Callable[..., Vllm]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter which runs the guard as it is, and the stand-in instead of vLLM."""
    script = tmp_path / "python"
    fake = Path(__file__).with_name("fake_vllm.py")
    script.write_text(f'#!/bin/sh\n[ "$1" = -I ] && exec {sys.executable} "$@"\nexec {sys.executable} {fake} "$@"\n')
    script.chmod(0o755)
    return script


@asynccontextmanager
async def started(
    python: Path, *, behaviour: str = "", policy: RestartPolicy = QUICK, events: VllmEvents | None = None
) -> AsyncIterator[Vllm]:
    ours = {"PATH": os.environ["PATH"], "VLLM_FAKE": behaviour, "SLACKWATER_DATABASE_URL": "postgresql://secret"}
    log = python.with_name("vllm.log")
    engine = Vllm(SETTINGS, python=python, log=log, environment=ours, policy=policy, events=events)
    engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def test_it_becomes_ready_and_lists_its_models(python: Path) -> None:
    async with started(python) as engine:
        assert not await engine.ready()
        with pytest.raises(EngineUnreachable, match="loading"):
            await engine.post("/v1/chat/completions", b"{}", timeout_seconds=5)
        await engine.wait_ready()
        assert await engine.ready()
        assert engine.knows_priority
        assert [(model.name, model.max_model_len) for model in await engine.models()] == [("fake", 7)]


async def test_the_engine_gets_none_of_our_secrets(python: Path) -> None:
    async with started(python) as engine:
        await engine.wait_ready()
        seen = json.loads((await engine.post("/v1/x", b"{}", timeout_seconds=5)).body)
    assert "SLACKWATER_DATABASE_URL" not in seen["environment"]
    assert seen["environment"]["VLLM_API_KEY"] == "secret-of-the-port"
    assert "secret-of-the-port" not in seen["arguments"]


async def test_an_engine_that_dies_is_started_again_elsewhere(python: Path) -> None:
    died, ready_seconds = asyncio.Queue[str](), asyncio.Queue[float]()
    events = VllmEvents(ready=ready_seconds.put_nowait, died=died.put_nowait)
    async with started(python, events=events) as engine:
        await engine.wait_ready()
        first_group, first_url = engine.group, engine.base_url
        assert first_group is not None
        os.killpg(first_group, signal.SIGKILL)
        assert "fake vLLM starts" in await asyncio.wait_for(died.get(), 20)
        await engine.wait_ready()
        assert engine.group != first_group
        assert engine.base_url != first_url
        assert (await engine.post("/v1/x", b"{}", timeout_seconds=5)).status == 200
        assert not processes_in(first_group)
    assert ready_seconds.qsize() == 2
    assert ready_seconds.get_nowait() > 0


async def test_an_engine_that_never_starts_is_given_up_with_its_last_words(python: Path) -> None:
    async with started(python, behaviour="broken") as engine:
        with pytest.raises(SetupError, match="ValueError: no such model"):
            await engine.wait_ready()


async def test_a_start_that_takes_too_long_has_failed(python: Path) -> None:
    policy = RestartPolicy(start_timeout_seconds=0.2, starts_before_giving_up=1)
    async with started(python, behaviour="slow", policy=policy) as engine:
        with pytest.raises(SetupError, match="does not start"):
            await engine.wait_ready()


async def test_closing_while_it_loads_leaves_no_process(python: Path) -> None:
    async with started(python, behaviour="slow") as engine:
        while engine.group is None:
            await asyncio.sleep(0)
        group = engine.group
        waiting = asyncio.create_task(engine.wait_ready())
        await asyncio.sleep(0)
        await engine.close()
        await engine.close()
        with pytest.raises(SetupError, match="closed"):
            await waiting
    assert not processes_in(group)


async def test_a_missing_interpreter_is_told(tmp_path: Path) -> None:
    async with started(tmp_path / "nowhere" / "python") as engine:
        with pytest.raises(SetupError, match="cannot be started"):
            await engine.wait_ready()


def test_pauses_double_up_to_the_longest() -> None:
    policy = RestartPolicy(first_seconds=1, most_seconds=60)
    assert [policy.pause(deaths) for deaths in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]
