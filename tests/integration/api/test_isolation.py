"""No tenant sees, moves or learns of another's anything."""

from typing import Any

import httpx2

from slackwater.domain.states import BatchState
from tests.api_under_test import Api
from tests.integration.api.test_batches import body_of, put_into
from tests.integration.api.test_files import upload
from tests.integration.api.test_transport import UNKNOWN_BATCH, UNKNOWN_FILE, make_batch


def told(response: httpx2.Response, *ids: str) -> Any:
    """What a reply says, with the id that was asked for taken out."""
    text = response.text
    for each in ids:
        text = text.replace(each, "ID")
    return response.status_code, text, response.headers["content-type"]


async def test_anothers_batch_reads_like_one_that_does_not_exist(api: Api) -> None:
    batch = await make_batch(api)
    stranger = api.http(api.globex)

    for method, path in [
        ("GET", "/v1/batches/{}"),
        ("POST", "/v1/batches/{}/cancel"),
        ("POST", "/v1/batches/{}/pause"),
        ("POST", "/v1/batches/{}/resume"),
        ("GET", "/v1/batches?after={}"),
    ]:
        foreign = await stranger.request(method, path.format(batch.id))
        unknown = await stranger.request(method, path.format(UNKNOWN_BATCH))
        assert told(foreign, batch.id) == told(unknown, UNKNOWN_BATCH)
        assert foreign.status_code == 404
    assert await api.sdk().batches.retrieve(batch.id) == batch


async def test_anothers_file_reads_like_one_that_does_not_exist(api: Api) -> None:
    file = await upload(api)
    stranger = api.http(api.globex)

    for method, path in [
        ("GET", "/v1/files/{}"),
        ("DELETE", "/v1/files/{}"),
        ("GET", "/v1/files/{}/content"),
        ("HEAD", "/v1/files/{}/content"),
        ("GET", "/v1/files?after={}"),
    ]:
        foreign = await stranger.request(method, path.format(file.id))
        unknown = await stranger.request(method, path.format(UNKNOWN_FILE))
        assert told(foreign, file.id) == told(unknown, UNKNOWN_FILE)
        assert foreign.status_code == 404
    assert await api.sdk().files.retrieve(file.id) == file


async def test_a_batch_on_anothers_file_is_refused_like_one_on_no_file(api: Api) -> None:
    file = await upload(api)
    stranger = api.http(api.globex)

    foreign = await stranger.post("/v1/batches", json=body_of(file.id))
    unknown = await stranger.post("/v1/batches", json=body_of(UNKNOWN_FILE))

    assert told(foreign, file.id) == told(unknown, UNKNOWN_FILE)
    assert foreign.status_code == 404


async def test_keys_of_the_store_are_neither_taken_nor_shown(api: Api) -> None:
    batch = await make_batch(api)
    (row,) = await api.rows("SELECT object_key FROM files")

    for http in (api.http(), api.http(api.globex)):
        for path in (row.object_key, row.object_key.replace("/", "%2F"), f"s3:%2F%2Fbucket%2F{row.object_key}"):
            assert (await http.get(f"/v1/files/{path}/content")).status_code == 404
    shown = (await api.http().get(f"/v1/batches/{batch.id}")).text + (await api.http().get("/v1/files")).text
    assert row.object_key not in shown
    assert api.acme.id not in shown


async def test_lists_hold_only_ones_own_in_every_state(api: Api) -> None:
    for status in BatchState:
        batch = await make_batch(api)
        await put_into(api, batch.id, status)
        assert (await api.http(api.globex).get(f"/v1/batches/{batch.id}")).status_code == 404

    mine, theirs = api.sdk(), api.sdk(api.globex)

    assert len((await mine.batches.list()).data) == len((await mine.files.list()).data) == len(BatchState)
    assert (await theirs.batches.list()).data == []
    assert (await theirs.files.list()).data == []


async def test_an_owner_sees_the_results_among_the_files(api: Api) -> None:
    batch = await make_batch(api)
    await api.rows(
        "INSERT INTO files (id, tenant_id, purpose, filename, size_bytes, sha256, object_key)"
        " VALUES (%(id)s, %(tenant)s, 'batch_output', 'batch_output.jsonl', 3, %(sha)s, 'outputs/x.out')",
        id=UNKNOWN_FILE,
        tenant=api.acme.id,
        sha="0" * 64,
    )
    await api.rows("UPDATE batches SET output_file_id = %(id)s", id=UNKNOWN_FILE)
    await put_into(api, batch.id, BatchState.COMPLETED)
    sdk = api.sdk()

    found = (await sdk.files.list(purpose="batch_output")).data

    assert [(file.id, file.purpose) for file in found] == [(UNKNOWN_FILE, "batch_output")]
    assert (await sdk.batches.retrieve(batch.id)).output_file_id == UNKNOWN_FILE
    assert (await sdk.files.delete(UNKNOWN_FILE)).deleted
    assert (await sdk.batches.retrieve(batch.id)).output_file_id == UNKNOWN_FILE


async def test_a_revoked_key_opens_nothing_at_once(api: Api) -> None:
    http = api.http()
    assert (await http.get("/v1/batches")).status_code == 200

    await api.rows("UPDATE api_keys SET revoked_at = now()")

    assert (await http.get("/v1/batches")).status_code == 401
