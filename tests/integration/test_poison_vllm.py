"""A prompt that kills real vLLM ends alone: its engine core is killed whenever that prompt arrives."""

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.catalog import add_model
from slackwater.db.session import Database
from slackwater.domain.replies import Reply
from slackwater.inference.vllm import Vllm
from slackwater.inference.vllm_restarts import RestartPolicy
from slackwater.inference.vllm_settings import VllmSettings
from tests.cases.recording import RecordingEngine
from tests.engines import TINY_MODEL_NAMES, processes_in
from tests.service import line, running_service

MODEL = TINY_MODEL_NAMES[0]
SLOTS = 4
LINES = 20
ENDLESS: dict[str, Any] = {"model": MODEL, "max_tokens": 1900, "ignore_eos": True}
"""Still at the engine when it is killed, however slowly that goes."""


class Assassin(RecordingEngine):
    """An engine whose core is killed by a marked prompt, a moment after it has come in."""

    def __init__(self, inner: Vllm) -> None:
        super().__init__(inner)
        self.vllm = inner
        self.kills = 0

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        call = asyncio.create_task(super().post(path, body, timeout_seconds=timeout_seconds))
        group = self.vllm.group
        if b"poison" in body and await self.vllm.ready() and group is not None:
            await asyncio.sleep(0.01)
            self.kills += 1
            for process, name in processes_in(group).items():
                if "EngineCor" in name:
                    os.kill(process, signal.SIGKILL)
        return await call


@pytest.fixture
async def assassin(engine_python: Path, vllm_engine_settings: VllmSettings, tmp_path: Path) -> AsyncIterator[Assassin]:
    engine = Vllm(
        vllm_engine_settings,
        python=engine_python,
        log=tmp_path / "vllm.log",
        environment=os.environ,
        policy=RestartPolicy(first_seconds=0.1, most_seconds=0.1),
    )
    engine.start()
    await engine.wait_ready()
    yield Assassin(engine)
    await engine.close()


async def test_a_prompt_that_kills_vllm_is_set_aside_and_its_neighbours_are_answered(
    assassin: Assassin,
    db: Database,
    store: BlobStore,
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with running_service(db, store, database_url, tmp_path, engines=[]) as service:
        await add_model(db, model_id=MODEL, actor="test", max_model_len=2048)
        service.add_worker(assassin, slots=SLOTS)

        began = time.monotonic()
        batch = await service.submit(
            line(f"r{n}", f"question {n}", model=MODEL) if n != 9 else line("r9", "poison", **ENDLESS)
            for n in range(LINES)
        )

        ended = await service.until(batch, seconds=600)
        seconds = time.monotonic() - began
        with capsys.disabled():
            sys.stdout.write(f"\n{assassin.kills} kills, {ended.succeeded} of {LINES} answered, {seconds:.0f} s\n")
        assert (ended.status, ended.succeeded, ended.errored) == ("completed", LINES - 1, 1)
        assert (await service.results(batch))["r9"]["error"]["code"] == "engine_crashed"
        assert 2 <= assassin.kills <= math.ceil(math.log2(SLOTS)) + 2
        await service.audit(batch)
