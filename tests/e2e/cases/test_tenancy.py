"""Two customers on one site: neither sees, moves, nor learns of anything that is the other's."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

import slackwater
from tests.cases.children import refuses_to_start
from tests.cases.customer import Customer, Ended
from tests.cases.inputs import INPUTS, read
from tests.cases.marks import case
from tests.cases.site import Site
from tests.service import jsonl, line

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = jsonl([line("a")])
HALF = jsonl([line("good"), line("bad", temperature="hot")])
UNKNOWN = "file-" + "0" * 32


def told(answer: httpx2.Response, *ids: str) -> tuple[int, str, str]:
    """What an answer says, with the ids that were asked for taken out."""
    text = answer.text
    for one in ids:
        text = text.replace(one, "ID")
    return answer.status_code, text, answer.headers["content-type"]


@pytest_asyncio.fixture(loop_scope="module")
async def ended(site: Site) -> Ended:
    """A batch of acme's with both result files."""
    return await site.acme.run(HALF)


@case("X01")
async def test_anothers_batch_can_be_neither_read_nor_cancelled_nor_its_results_had(site: Site, ended: Ended) -> None:
    site.held.add("schedule")
    running = (await site.acme.create(await site.acme.upload(GOOD)))["id"]
    await site.acme.until(running, "in_progress")
    unknown = "batch_" + "0" * 32

    for batch_id in (running, ended.batch["id"]):
        for method, path in (("GET", "/v1/batches/{}"), ("POST", "/v1/batches/{}/cancel")):
            foreign = await site.globex.http.request(method, path.format(batch_id))
            nobody = await site.globex.http.request(method, path.format(unknown))
            assert told(foreign, batch_id) == told(nobody, unknown)
            assert foreign.status_code == 404
    for name in ("input_file_id", "output_file_id", "error_file_id"):
        answer = await site.globex.http.get(f"/v1/files/{ended.batch[name]}/content")
        assert answer.status_code == 404

    assert (await site.acme.get(running))["status"] == "in_progress"
    assert await site.acme.get(ended.batch["id"]) == ended.batch
    site.held.remove("schedule")
    assert (await site.acme.ended(running)).counts == (1, 1, 0)


@case("X02")
async def test_anothers_file_is_unknown_by_its_id_its_key_and_its_address(site: Site, ended: Ended) -> None:
    file_id = ended.batch["output_file_id"]
    (row,) = await site.rows("SELECT object_key FROM files WHERE id = %(id)s", id=file_id)
    key = row.object_key
    site.store.read_keys.clear()

    for method, path in (("GET", "/v1/files/{}"), ("GET", "/v1/files/{}/content"), ("DELETE", "/v1/files/{}")):
        nobody = await site.globex.http.request(method, path.format(UNKNOWN))
        foreign = await site.globex.http.request(method, path.format(file_id))
        assert told(foreign, file_id) == told(nobody, UNKNOWN)
        for name in (key, key.replace("/", "%2F"), f"s3:%2F%2Fbucket%2F{key}", f"file:%2F%2F%2Fobjects%2F{key}"):
            for customer in (site.acme, site.globex):
                answer = await customer.http.request(method, path.format(name))
                assert answer.status_code in {404, 405}, name

    assert site.store.read_keys == []
    assert key not in (await site.acme.http.get("/v1/files")).text
    assert key not in (await site.acme.http.get(f"/v1/batches/{ended.batch['id']}")).text
    assert (await site.acme.http.get(f"/v1/files/{file_id}")).status_code == 200


async def in_every_end(site: Site) -> dict[str, Ended]:
    """Batches of acme's in each final state, by state."""
    ends = [await site.acme.run(HALF), await site.acme.run(read("v01_dup_custom_id.jsonl"))]
    site.held.add("schedule")
    cancelled, expired = [await site.acme.create(await site.acme.upload(GOOD)) for _ in range(2)]
    for batch in (cancelled, expired):
        await site.acme.until(batch["id"], "in_progress")
    await site.acme.cancel(cancelled["id"])
    await site.rows("UPDATE batches SET deadline = now() WHERE id = %(id)s", id=expired["id"])
    ends += [await site.acme.ended(batch["id"]) for batch in (cancelled, expired)]
    site.held.remove("schedule")
    return {one.status: one for one in ends}


def ids_in(shown: dict[str, Any]) -> set[str]:
    names = ("id", "input_file_id", "output_file_id", "error_file_id")
    return {shown[name] for name in names if shown[name] is not None}


@case("X03")
async def test_batches_in_every_final_state_are_their_owners_alone(site: Site) -> None:
    ends = await in_every_end(site)
    assert set(ends) == {"completed", "failed", "cancelled", "expired"}
    hidden = set().union(*(ids_in(one.batch) for one in ends.values()))

    for path in ("/v1/batches", "/v1/files", "/v1/files?limit=1", "/v1/models"):
        shown = (await site.globex.http.get(path)).text
        assert not any(one in shown for one in hidden)
    for one in hidden:
        kind = "batches" if one.startswith("batch_") else "files"
        assert (await site.globex.http.get(f"/v1/{kind}/{one}")).status_code == 404
    # Every view shows the same ids.
    listed = {batch["id"]: batch for batch in (await site.acme.http.get("/v1/batches?limit=100")).json()["data"]}
    assert all(listed[one.batch["id"]] == one.batch for one in ends.values())


@case("X04")
async def test_an_owner_finds_the_results_among_the_files_and_the_batch_in_the_list(site: Site, ended: Ended) -> None:
    sdk = site.acme.sdk

    outputs = {file.id: file async for file in sdk.files.list(purpose="batch_output")}
    everything = {file.id async for file in sdk.files.list()}
    batches = {batch.id async for batch in sdk.batches.list()}

    results = {ended.batch["output_file_id"], ended.batch["error_file_id"]}
    assert results <= set(outputs)
    assert results | {ended.batch["input_file_id"]} <= everything
    assert {outputs[one].purpose for one in results} == {"batch_output"}
    assert ended.batch["id"] in batches


async def create_raw(customer: Customer, body: str) -> httpx2.Response:
    headers = {"Content-Type": "application/json"}
    return await customer.http.post("/v1/batches", content=body.encode(), headers=headers)


@case("X05", "E03", "P08")
async def test_every_collected_body_is_answered_as_it_should_be_and_in_our_shape(site: Site) -> None:
    mine = await site.acme.upload(GOOD)

    for raw in (INPUTS / "b01_create_bodies.jsonl").read_text().splitlines():
        asked = json.loads(raw)
        answer = await create_raw(site.acme, json.dumps(asked["body"]).replace("FILE", mine))
        assert str(answer.status_code) in asked["expect"], asked["name"]
        if answer.status_code == 200:
            await site.acme.ended(answer.json()["id"])
            continue
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        if "param=" in asked["expect"]:
            assert error["param"] == asked["expect"].split("param=")[1].split(",")[0]
        if asked["name"] == "endpoint_unknown":
            assert "'/v1/chat/completions'" in error["message"]


@case("X05")
async def test_a_batch_on_anothers_file_is_refused_as_on_one_that_does_not_exist_and_as_fast(site: Site) -> None:
    theirs = await site.acme.upload(GOOD)
    seconds: dict[str, list[float]] = {theirs: [], UNKNOWN: []}

    for raw in (INPUTS / "b01_create_bodies.jsonl").read_text().splitlines():
        body = json.dumps(json.loads(raw)["body"])
        foreign = await create_raw(site.globex, body.replace("FILE", theirs))
        nobody = await create_raw(site.globex, body.replace("FILE", UNKNOWN))
        assert told(foreign, theirs) == told(nobody, UNKNOWN), raw
        assert foreign.status_code in {400, 404}
    plain = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    for _ in range(30):
        for file_id, taken in seconds.items():
            began = time.perf_counter()
            await create_raw(site.globex, json.dumps({"input_file_id": file_id, **plain}))
            taken.append(time.perf_counter() - began)

    foreign_median, unknown_median = map(statistics.median, seconds.values())
    assert abs(foreign_median - unknown_median) < max(foreign_median, unknown_median) / 2
    assert (await site.globex.http.get("/v1/batches")).json()["data"] == []


@pytest.mark.parametrize("engine", ["url", "vllm"])
@case("X10")
async def test_a_worker_without_a_backend_refuses_to_start_and_guesses_none(engine: str, tmp_path: Path) -> None:
    settings = {"SLACKWATER_ENGINE": engine, "SLACKWATER_STORE_URL": f"file://{tmp_path}", "HOME": str(tmp_path)}

    said = await refuses_to_start("work", settings)

    assert "engine" in said.lower()
    assert "Traceback" not in said


@case("X10")
async def test_no_public_hosts_name_stands_anywhere_in_the_service() -> None:
    sources = "\n".join(path.read_text() for path in Path(slackwater.__file__).parent.rglob("*.py"))

    assert not any(host in sources for host in ("api.openai.com", "api.anthropic.com", "openai.azure.com"))
