"""Files after their upload: listed, paged, deleted, and read while and after a batch needs them."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from slackwater.blobs.store import open_store
from slackwater.domain.errors import StoreUnavailable
from slackwater.embedded.postgres import EmbeddedPostgres
from slackwater.flow.sweep import Sweeper
from slackwater.inference.simulated import Latency
from tests.cases.inputs import INPUTS, read
from tests.cases.marks import case
from tests.cases.site import Site, own_site, simulated
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = jsonl([line("a")])
HALF = jsonl([line("good"), line("bad", temperature="hot")])
"""One line for each result file."""


async def make_rows(site: Site, tenant_id: str, count: int) -> None:
    """Make rows of files as they would be there after so many uploads; their bytes are never asked for."""
    await site.rows(
        "INSERT INTO files (id, tenant_id, purpose, filename, size_bytes, sha256, object_key)"
        " SELECT 'file-' || lpad(to_hex(n), 32, '0'), %(tenant)s, 'batch', 'in.jsonl', 1, repeat('0', 64),"
        " 'inputs/file-' || lpad(to_hex(n), 32, '0') FROM generate_series(1, %(count)s) AS n",
        tenant=tenant_id,
        count=count,
    )


@case("F01", "F03")
async def test_lists_are_paged_to_their_end_and_bounded(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    async with own_site(postgres_server, tmp_path, engines=[]) as site:
        await make_rows(site, site.api.acme.id, 15_000)
        made = [await site.globex.upload(GOOD) for _ in range(55)]

        seen = [file.id async for file in site.globex.sdk.files.list(limit=20)]
        began = time.perf_counter()
        page = (await site.acme.http.get("/v1/files")).json()
        seconds = time.perf_counter() - began

        assert seen == made[::-1]
        assert (len(page["data"]), page["has_more"]) == (10_000, True)
        assert page["last_id"] == page["data"][-1]["id"]
        # A quarter of a second where nothing else runs.
        assert seconds < 5


@case("F04")
async def test_lists_answer_in_place_under_every_spelling(site: Site) -> None:
    await site.acme.create(await site.acme.upload(GOOD))
    for path in ("/v1/files", "/v1/files/", "/v1/batches", "/v1/batches/", "/files", "/batches/"):
        answer = await site.acme.http.get(path, follow_redirects=False)
        assert (answer.status_code, answer.json()["object"]) == (200, "list"), path
        assert answer.json()["data"], path


@case("F05", "X09")
async def test_a_list_query_is_honoured_or_refused_by_the_parameters_name(site: Site) -> None:
    mine = [await site.acme.upload(GOOD) for _ in range(3)]
    theirs = await site.globex.upload(GOOD)
    their_batch = (await site.globex.create(theirs))["id"]

    for path, other in (("/v1/files", theirs), ("/v1/batches", their_batch)):
        unknown = await site.acme.http.get(f"{path}?after={other[:-4]}0000")
        for query in (INPUTS / "q01_list_queries.txt").read_text().splitlines():
            answer = await site.acme.http.get(f"{path}?{query.replace('OTHER_TENANTS_ID', other)}")
            assert answer.status_code in {200, 400, 404}, query
            if answer.status_code != 200:
                assert answer.json()["error"]["param"] == query.split("=")[0].removesuffix("[]"), query
            if "OTHER_TENANTS_ID" in query:
                told = answer.text.replace(other, "ID")
                assert (answer.status_code, told) == (404, unknown.text.replace(f"{other[:-4]}0000", "ID"))

    async def ids(query: str) -> list[str]:
        return [file["id"] for file in (await site.acme.http.get(f"/v1/files?{query}")).json()["data"]]

    assert await ids("limit=1") == [mine[2]]
    assert await ids(f"after={mine[2]}&limit=1") == [mine[1]]
    assert mine[0] in await ids("purpose=batch")
    assert mine[0] not in await ids("purpose=user_data")


@case("F07")
async def test_input_output_and_error_files_are_deleted_once(site: Site) -> None:
    ended = await site.acme.run(HALF)
    files = [ended.batch[name] for name in ("input_file_id", "output_file_id", "error_file_id")]
    assert all(files)

    for file_id in files:
        first = await site.acme.http.delete(f"/v1/files/{file_id}")
        second = await site.acme.http.delete(f"/v1/files/{file_id}")
        assert (first.status_code, first.json()) == (200, {"id": file_id, "object": "file", "deleted": True})
        assert second.status_code == 404
        assert (await site.acme.http.get(f"/v1/files/{file_id}/content")).status_code == 404


@case("F08")
async def test_a_running_batch_keeps_its_deleted_input(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    slow = simulated(latency=Latency(decode_seconds_per_token=0.02), max_num_seqs=16)
    async with own_site(postgres_server, tmp_path, engines=[slow]) as site:
        lines = [line(f"r{n}", f"{n}") for n in range(96)]
        waiting = await site.acme.create(await site.acme.upload(jsonl(lines)))
        site.held.add("plan")
        unplanned = await site.acme.create(await site.acme.upload(jsonl(lines[:3])))
        for batch in (waiting, unplanned):
            deleted = await site.acme.http.delete(f"/v1/files/{batch['input_file_id']}")
            assert deleted.status_code == 200
        site.held.remove("plan")

        first, second = [await site.acme.until(batch["id"]) for batch in (waiting, unplanned)]

        assert (first["status"], first["request_counts"]["completed"]) == ("completed", 96)
        assert (second["status"], second["request_counts"]["completed"]) == ("completed", 3)
        assert (await site.acme.content(first["output_file_id"])).count(b"\n") == 96
        # Now nobody needs the inputs any more: their bytes go, the results stay.
        async with asyncio.timeout(20):
            while await site.store.keys("inputs"):
                await asyncio.sleep(0.05)
        assert (await site.acme.content(second["output_file_id"])).count(b"\n") == 3
        assert site.server_errors() == {}


@case("F08")
async def test_a_deleted_output_is_gone_and_its_batch_is_still_shown(site: Site) -> None:
    ended = await site.acme.run(GOOD)

    await site.acme.http.delete(f"/v1/files/{ended.batch['output_file_id']}")

    content = await site.acme.http.get(f"/v1/files/{ended.batch['output_file_id']}/content")
    assert (content.status_code, content.json()["error"]["param"]) == (404, "id")
    assert await site.acme.get(ended.batch["id"]) == ended.batch


async def vanish() -> None:
    raise StoreUnavailable("the process is gone")


@pytest.mark.parametrize("moment", ["before", "after"])
@case("F10")
async def test_a_deletion_cut_short_is_finished_by_the_next_sweep(
    moment: str, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path, engines=[]) as site:
        site.held.add("sweep")
        file_id = await site.acme.upload(GOOD)
        assert (await site.acme.http.delete(f"/v1/files/{file_id}")).status_code == 200
        faults = site.store.before if moment == "before" else site.store.after
        faults["sweep.file"] = vanish
        sweeper = Sweeper(db=site.db, store=site.store, keep_seconds=0, now=lambda: datetime.now(UTC))

        with pytest.raises(StoreUnavailable):
            await sweeper.sweep_files_once()
        half = await site.acme.http.get(f"/v1/files/{file_id}/content")
        del faults["sweep.file"]
        assert await sweeper.sweep_files_once()

        assert half.status_code == 404
        assert await site.store.keys("inputs") == set()
        assert not await sweeper.sweep_files_once()
        assert site.server_errors() == {}


@case("F12")
async def test_inputs_of_batches_that_ended_badly_can_be_deleted(site: Site) -> None:
    failed = await site.acme.run(read("v01_dup_custom_id.jsonl"))
    site.held.add("schedule")
    cancelled, expired = [await site.acme.create(await site.acme.upload(GOOD)) for _ in range(2)]
    for batch in (cancelled, expired):
        await site.acme.until(batch["id"], "in_progress")
    assert (await site.acme.cancel(cancelled["id"])).status_code == 200
    await site.rows("UPDATE batches SET deadline = now() WHERE id = %(id)s", id=expired["id"])
    ends = [await site.acme.ended(batch["id"]) for batch in (cancelled, expired)]
    site.held.remove("schedule")

    assert [failed.status, *[end.status for end in ends]] == ["failed", "cancelled", "expired"]
    for ended in (failed, *ends):
        deleted = await site.acme.http.delete(f"/v1/files/{ended.batch['input_file_id']}")
        assert deleted.json()["deleted"] is True
        assert (await site.acme.get(ended.batch["id"]))["status"] == ended.status
    inputs = {f"inputs/{ended.batch['input_file_id']}" for ended in (failed, *ends)}
    async with asyncio.timeout(20):
        while inputs & await site.store.keys("inputs"):
            await asyncio.sleep(0.05)


@case("F13")
async def test_files_of_a_store_that_was_exchanged_are_a_clear_error_and_can_be_deleted(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with own_site(postgres_server, tmp_path / "site") as site:
        old = [await site.acme.upload(GOOD) for _ in range(3)]
        before = site.store.inner
        site.store.inner = open_store(f"file://{tmp_path / 'elsewhere'}")

        answer = await site.acme.http.get(f"/v1/files/{old[0]}/content")
        batch = await site.acme.create(old[1])
        ended = await site.acme.until(batch["id"])
        deleted = await site.acme.http.delete(f"/v1/files/{old[2]}")
        new = await site.acme.run(GOOD)
        await site.store.inner.close()
        site.store.inner = before

        assert_says_that_bytes_are_missing(answer)
        assert (ended["status"], ended["errors"]["data"][0]["code"]) == ("failed", "input_unavailable")
        assert deleted.status_code == 200
        assert new.status == "completed"
        # Nothing was forgotten about the old ones: with the old store back they can be read.
        assert await site.acme.content(old[0]) == GOOD


def assert_says_that_bytes_are_missing(answer: httpx2.Response) -> None:
    assert answer.status_code == 500
    error = answer.json()["error"]
    assert error["type"] == "server_error"
    assert answer.headers["x-request-id"] in error["message"]
