"""A batch that is cancelled or whose window ends: how soon nothing of it runs, on the simulated engine and on vLLM."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.db.catalog import add_model
from slackwater.db.session import Database
from slackwater.domain.cutting import CutRules
from slackwater.domain.ids import BatchId
from slackwater.inference.openai_server import OpenAIServer
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings
from slackwater.inference.vllm import Vllm
from tests.cases.recording import RecordingEngine
from tests.engines import TINY_MODEL_NAMES
from tests.service import Service, line, running_service

SLOTS = 8
LINES = 96
STOPS_SECONDS = 2.0
LETS_GO_SECONDS = 60.0
EXPIRES_SECONDS = 120.0
ENDLESS: dict[str, Any] = {"model": TINY_MODEL_NAMES[0], "max_tokens": 1900, "ignore_eos": True}


@pytest.fixture
async def service(db: Database, store: BlobStore, database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    cut = CutRules(min_requests=1000)
    async with running_service(db, store, database_url, tmp_path, engines=[], cut=cut) as running:
        yield running


async def stop(service: Service, batch: BatchId, ending: str) -> None:
    if ending == "cancelled":
        await service.cancel(batch)
    else:
        await service.db.fetch("test", "UPDATE batches SET deadline = now()", {})


async def seconds_until_quiet(engine: RecordingEngine, began: float) -> float:
    """Wait until the engine's own gauge says that nothing is at it."""
    async with asyncio.timeout(LETS_GO_SECONDS):
        while (await engine.load()).running:
            await asyncio.sleep(0.02)
    return time.perf_counter() - began


async def check_end(service: Service, batch: BatchId, ending: str, lines: int, answered: int) -> None:
    """Every answered line stays, every other one has the contract's code, and the auditor agrees."""
    ended = await service.until(batch)
    assert (ended.status, ended.succeeded) == (ending, answered)
    results = await service.results(batch)
    codes = [one["error"]["code"] for one in results.values() if one["error"]]
    assert codes == [f"batch_{ending}"] * (lines - answered)
    await service.audit(batch)


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_a_stopped_batch_sends_nothing_after_two_seconds_and_frees_the_engine(
    service: Service, ending: str
) -> None:
    slow = SimulatedSettings(latency=Latency(decode_seconds_per_token=0.1), max_num_seqs=SLOTS)
    engine = RecordingEngine(SimulatedEngine(slow))
    service.add_worker(engine, slots=SLOTS)
    batch = await service.submit((line(f"r{n}") for n in range(LINES)), window=timedelta(hours=1))
    async with asyncio.timeout(30):
        while len(engine.finished) < SLOTS:
            await asyncio.sleep(0.01)

    began = time.perf_counter()
    await stop(service, batch, ending)

    assert await seconds_until_quiet(engine, began) < STOPS_SECONDS
    sent = len(engine.sent)
    await check_end(service, batch, ending, LINES, len(engine.finished))
    assert len(engine.sent) == sent < LINES


async def test_a_window_that_ends_while_nobody_works_ends_the_batch(service: Service) -> None:
    batch = await service.submit((line(f"r{n}") for n in range(LINES)), window=timedelta(hours=1))
    await service.until(batch, "in_progress")

    began = time.perf_counter()
    await stop(service, batch, "expired")

    await check_end(service, batch, "expired", LINES, 0)
    assert time.perf_counter() - began < EXPIRES_SECONDS


async def test_a_window_that_ends_while_a_dead_worker_holds_the_chunk_ends_the_batch(service: Service) -> None:
    engine = RecordingEngine(SimulatedEngine(SimulatedSettings(latency=Latency(decode_seconds_per_token=60.0))))
    service.add_worker(engine, slots=SLOTS)
    batch = await service.submit((line(f"r{n}") for n in range(LINES)), window=timedelta(hours=1))
    async with asyncio.timeout(30):
        while not engine.sent:
            await asyncio.sleep(0.01)
    # Without a word: its heartbeat is seconds old, and its lease stands.
    service.workers[0].cancel()
    await asyncio.gather(service.workers[0], return_exceptions=True)

    began = time.perf_counter()
    await stop(service, batch, "expired")

    await check_end(service, batch, "expired", LINES, 0)
    assert time.perf_counter() - began < EXPIRES_SECONDS


async def test_cancelling_frees_the_slots_of_vllm(
    vllm: Vllm, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vllm.base_url is not None
    engine = RecordingEngine(OpenAIServer(vllm.base_url))
    await add_model(service.db, model_id=ENDLESS["model"], actor="test", max_model_len=2048)
    service.add_worker(engine, slots=SLOTS)
    short = line("short", model=ENDLESS["model"])
    lines = [short, *(line(f"r{n}", f"question {n}", **ENDLESS) for n in range(2 * SLOTS))]
    batch = await service.submit(lines, window=timedelta(hours=1))
    async with asyncio.timeout(120):
        while not engine.finished or (await engine.load()).running != SLOTS:
            await asyncio.sleep(0.05)

    began = time.perf_counter()
    await service.cancel(batch)
    quiet = await seconds_until_quiet(engine, began)

    with capsys.disabled():
        sys.stdout.write(f"\nvLLM runs nothing {quiet:.2f} s after the cancel\n")
    await check_end(service, batch, "cancelled", len(lines), len(engine.finished))
    await engine.close()
