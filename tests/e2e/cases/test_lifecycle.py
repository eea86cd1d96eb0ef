"""Batches from their creation to their one end, whatever fails, is repeated or comes late on the way."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from slackwater.blobs import keys
from slackwater.db.catalog import add_model
from slackwater.domain.cutting import CutRules
from slackwater.domain.errors import StoreUnavailable
from slackwater.domain.ids import FileId
from slackwater.domain.replies import Reply
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.inference.protocol import Engine
from slackwater.inference.simulated import Latency, SimulatedEngine
from tests.cases.inputs import CHAT, MODEL, questions, read
from tests.cases.marks import case
from tests.cases.recording import RecordingEngine
from tests.cases.site import Site, own_site, simulated
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = jsonl([line("a")])


class Panicking(RecordingEngine):
    """An engine whose second request raises what no engine should."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.panics = 1

    async def post(self, path: str, body: bytes, *, timeout_seconds: float) -> Reply:
        reply = await super().post(path, body, timeout_seconds=timeout_seconds)
        if len(self.sent) >= 2 and self.panics:
            self.panics -= 1
            raise RuntimeError("a fault of the runner's own")
        return reply


@case("L01")
async def test_a_fault_in_the_runner_ends_its_worker_and_never_the_batch(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = Panicking(simulated().inner)
    async with own_site(postgres_server, tmp_path, engines=[engine]) as site:
        batch = await site.acme.create(await site.acme.upload(questions(5)))
        async with asyncio.timeout(30):
            await asyncio.wait(site.service.workers)
        broken = site.service.workers.pop()
        site.service.add_worker(engine, name="worker-1")

        ended = await site.acme.ended(batch["id"])

        assert broken.exception() is not None
        assert (ended.status, ended.counts) == ("completed", (5, 5, 0))


@case("L07", "D12")
async def test_a_store_that_fails_while_results_are_joined_delays_that_batch_and_no_other(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path, cut=CutRules(min_requests=1)) as site:
        failures = 0

        async def fail() -> None:
            nonlocal failures
            failures += 1
            raise StoreUnavailable("the store answers 500")

        site.store.before["finish.join"] = fail
        batch = await site.acme.create(await site.acme.upload(questions(60)))
        async with asyncio.timeout(60):
            while failures < 3:
                # The claim of the attempt that failed is over.
                await site.rows("UPDATE batches SET claimed_until = now() WHERE status = 'finalizing'")
                await asyncio.sleep(0.05)
        other = await site.globex.run(GOOD)
        meanwhile = await site.acme.get(batch["id"])
        del site.store.before["finish.join"]
        await site.rows("UPDATE batches SET claimed_until = now() WHERE status = 'finalizing'")
        sent = len(site.engine.sent)

        ended = await site.acme.ended(batch["id"])

        assert (other.status, meanwhile["status"]) == ("completed", "finalizing")
        assert (ended.status, ended.counts) == ("completed", (60, 60, 0))
        # Joined from what was kept: nothing ran again.
        assert len(site.engine.sent) == sent == 61


@case("L08")
async def test_a_result_that_comes_after_the_end_changes_nothing(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path, cut=CutRules(min_requests=1000)) as site:
        go_on, held = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            held.set()
            await go_on.wait()

        site.store.before["work.part"] = hold
        batch = await site.acme.create(await site.acme.upload(questions(20)))
        async with asyncio.timeout(30):
            await held.wait()
        assert (await site.acme.cancel(batch["id"])).json()["status"] == "cancelling"
        first = await site.acme.ended(batch["id"])
        site.store.before.clear()
        go_on.set()
        async with asyncio.timeout(30):
            while (await site.engine.load()).running or await site.rows("SELECT 1 FROM chunks WHERE state = 'leased'"):
                await asyncio.sleep(0.05)
        after = await site.globex.run(GOOD)

        assert first.status == "cancelled"
        assert after.status == "completed"
        assert (await site.acme.ended(batch["id"])).batch == first.batch
        assert (await site.acme.cancel(batch["id"])).status_code == 409
        assert first.counts == (20, 0, 20)


@case("L11", "L12", "L21")
async def test_a_batch_that_cannot_be_read_fails_with_its_reason_and_stops_nobody_else(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path) as site:
        site.held.add("plan")
        files = [await site.acme.upload(questions(3)) for _ in range(4)]
        strange, gone, garbled, fine = [await site.acme.create(file_id) for file_id in files]
        await site.rows("UPDATE batches SET endpoint = '/v9/strange' WHERE id = %(id)s", id=strange["id"])
        await site.store.inner.delete([keys.input_key(FileId(files[1]))], stage="test")
        await site.store.inner.put(keys.input_key(FileId(files[2])), b"\x89PNG not lines at all", stage="test")
        site.held.remove("plan")

        ends = [await site.acme.until(batch["id"]) for batch in (strange, gone, garbled)]
        good = await site.acme.ended(fine["id"])

        assert {end["status"] for end in ends} == {"failed"}
        for end in ends:
            (error, *_) = end["errors"]["data"]
            assert error["code"]
            assert error["message"]
        assert ends[1]["errors"]["data"][0]["code"] == "input_unavailable"
        assert (good.status, good.counts) == ("completed", (3, 3, 0))
        assert [request.path for request in site.engine.sent] == [CHAT] * 3


@case("L21")
@pytest.mark.parametrize(
    "name", ["v01_dup_custom_id.jsonl", "p35_empty.jsonl", "p32_latin1_bytes.jsonl", "v09_unknown_model.jsonl"]
)
async def test_a_failed_batch_always_says_why(name: str, site: Site) -> None:
    ended = await site.acme.run(read(name))

    shown = await site.acme.sdk.batches.retrieve(ended.batch["id"])
    assert shown.status == "failed"
    assert shown.errors is not None
    assert shown.errors.data
    assert all(error.code and error.message for error in shown.errors.data)


class Forgetful(openai.DefaultAsyncHttpxClient):
    """The connection of a caller that never hears of its first create, although the service has taken it."""

    lost = 0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        response = await super().send(request, **options)
        if request.method == "POST" and request.url.path == "/v1/batches" and not self.lost:
            self.lost += 1
            raise httpx2.ReadTimeout("no answer in time", request=request)
        return response


@case("L13", "T12")
async def test_a_create_that_timed_out_and_is_repeated_by_the_sdk_makes_one_batch(site: Site) -> None:
    file_id = await site.acme.upload(GOOD)
    async with (
        Forgetful(trust_env=False) as http,
        openai.AsyncOpenAI(
            base_url=f"{site.acme.origin}/v1", api_key=site.acme.key, max_retries=2, http_client=http
        ) as sdk,
    ):
        batch = await sdk.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        lost = http.lost

    listed = (await site.acme.http.get("/v1/batches?limit=100")).json()["data"]
    assert lost == 1
    assert [one["id"] for one in listed if one["input_file_id"] == file_id] == [batch.id]
    assert (await site.acme.ended(batch.id)).counts == (1, 1, 0)


@case("L13", "T12")
async def test_creates_that_nothing_tells_from_new_ones_are_listed_and_can_be_cancelled(site: Site) -> None:
    site.held.add("plan")
    file_id = await site.acme.upload(GOOD)
    body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    keyed = [
        (await site.acme.http.post("/v1/batches", json=body, headers={"Idempotency-Key": "order-17"})).json()["id"]
        for _ in range(3)
    ]
    plain = [(await site.acme.http.post("/v1/batches", json=body)).json()["id"] for _ in range(2)]

    listed = [batch["id"] for batch in (await site.acme.http.get("/v1/batches?limit=3")).json()["data"]]
    cancelled = await site.acme.cancel(plain[1])
    site.held.remove("plan")

    assert len(set(keyed)) == 1
    assert listed == [*plain[::-1], keyed[0]]
    assert cancelled.json()["status"] == "cancelled"
    ends = [await site.acme.ended(batch_id) for batch_id in (keyed[0], *plain)]
    assert [end.status for end in ends] == ["completed", "completed", "cancelled"]


@case("L17")
async def test_one_file_runs_as_often_as_it_is_asked_for_one_after_the_other_and_at_once(site: Site) -> None:
    data = questions(6)
    for _ in range(3):
        assert (await site.acme.run(data)).counts == (6, 6, 0)
    both = await asyncio.gather(site.acme.run(data), site.acme.run(data))

    assert [ended.counts for ended in both] == [(6, 6, 0)] * 2
    ids = {result["id"] for ended in both for result in ended.answered.values()}
    assert len(ids) == 12
    # No id of the customer's is used as one of the engine's.
    assert not any(b"custom_id" in sent.body or b"request_id" in sent.body for sent in site.engine.sent)


@case("L18", "T10")
async def test_lines_wait_for_an_engine_that_is_not_there_yet_and_none_of_them_fails(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path, engines=[]) as site:
        await add_model(site.db, model_id=MODEL, actor="test")
        nobody = await site.acme.create(await site.acme.upload(questions(8)))
        waiting = await site.acme.until(nobody["id"], "in_progress")
        loading = simulated()
        assert isinstance(loading.inner, SimulatedEngine)
        loading.inner.crash()
        site.service.add_worker(loading)
        await asyncio.sleep(1.0)
        still = await site.acme.get(nobody["id"])
        loading.inner.restart()

        ended = await site.acme.ended(nobody["id"])

        for look in (waiting, still):
            assert (look["status"], look["request_counts"]) == (
                "in_progress",
                {"total": 8, "completed": 0, "failed": 0},
            )
        assert (ended.status, ended.counts) == ("completed", (8, 8, 0))
        assert len(loading.sent) == 8


@case("C01")
async def test_a_cancel_among_the_last_lines_ends_cancelled_or_whole_and_its_counts_are_true(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = simulated(latency=Latency(decode_seconds_per_token=0.004), max_num_seqs=5)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 5}) as site:
        endings = set()
        for attempt in range(12):
            engine.forget()
            batch = await site.acme.create(await site.acme.upload(questions(5)))
            async with asyncio.timeout(30):
                while len(engine.finished) < attempt % 6:
                    await asyncio.sleep(0.001)
            answer = await site.acme.cancel(batch["id"])
            ended = await site.acme.ended(batch["id"])
            assert answer.status_code in {200, 409}
            if answer.status_code == 200:
                assert ended.status == "cancelled"
            assert ended.counts == (ended.counts[0], len(ended.answered), len(ended.refused))
            assert ended.counts[0] in {0, 5}
            endings.add(ended.status)
        assert "cancelled" in endings


@case("C02", "C11")
@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_lines_in_flight_at_the_end_and_lines_never_begun_are_all_in_a_file(
    ending: str, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = simulated(latency=Latency(decode_seconds_per_token=0.1), max_num_seqs=10)
    async with own_site(postgres_server, tmp_path, engines=[engine], worker={"slots": 10}) as site:
        batch = await site.acme.create(await site.acme.upload(questions(50)))
        async with asyncio.timeout(30):
            while len(engine.finished) < 10 or (await engine.load()).running != 10:
                await asyncio.sleep(0.005)
        began = time.monotonic()
        if ending == "cancelled":
            await site.acme.cancel(batch["id"])
        else:
            await site.rows("UPDATE batches SET deadline = now()")
        ended = await site.acme.ended(batch["id"])
        seconds = time.monotonic() - began

        assert ended.status == ending
        assert set(ended.answered) | set(ended.refused) == {f"r{n}" for n in range(50)}
        assert len(ended.answered) >= 10
        assert ended.refused
        for result in ended.refused.values():
            assert (result["response"], result["error"]["code"]) == (None, f"batch_{ending}")
            assert ending.removesuffix("d") in result["error"]["message"]
        assert (await engine.load()).running == 0
        assert seconds < 30


@case("C07", "C08")
async def test_a_window_that_ends_keeps_what_is_done_also_of_a_worker_that_is_lost(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    engine = simulated(latency=Latency(decode_seconds_per_token=0.05), max_num_seqs=1)
    worker = {"slots": 1, "checkpoint_seconds": 0.05}
    async with own_site(postgres_server, tmp_path, engines=[engine], worker=worker) as site:
        batch = await site.acme.create(await site.acme.upload(questions(10)))
        async with asyncio.timeout(30):
            while not await site.rows("SELECT 1 FROM chunks WHERE checkpoints > 0 OR state = 'done'"):
                await asyncio.sleep(0.02)
        lost = site.service.workers.pop()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        await site.rows("UPDATE batches SET deadline = now()")

        ended = await site.acme.ended(batch["id"])

        assert ended.status == "expired"
        assert ended.batch["output_file_id"]
        assert ended.batch["error_file_id"]
        assert 1 <= ended.counts[1] < 10
        assert {result["error"]["code"] for result in ended.refused.values()} == {"batch_expired"}
        assert ended.batch["expired_at"]
