"""Files through the stock SDK: uploads of every shape, listing, paging, deletion."""

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from slackwater.api.dependencies import ApiDependencies
from slackwater.api.settings import ApiSettings
from slackwater.domain.errors import StoreUnavailable
from tests.api_under_test import LINE, Api, running_api
from tests.integration.api.test_transport import UNKNOWN_FILE, assert_openai_error, make_batch

DAY = 24 * 3600

Part = tuple[str, str | None, bytes]
"""Name, file name, value."""


async def upload(api: Api, content: bytes = LINE, **options: Any) -> openai.types.FileObject:
    return await api.sdk().files.create(**{"file": ("in.jsonl", content), "purpose": "batch", **options})


async def stored(api: Api) -> list[str]:
    return [each.key async for each in api.deps.blobs.list("inputs")]


def form(*parts: Part) -> dict[str, Any]:
    """A multipart body, its parts in the order given."""
    pieces = []
    for name, filename, value in parts:
        named = f'; filename="{filename}"' if filename is not None else ""
        head = f'--b0undary\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'
        pieces.append(head.encode() + value + b"\r\n")
    headers = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    return {"content": b"".join(pieces) + b"--b0undary--\r\n", "headers": headers}


async def test_a_path_an_open_file_and_a_tuple_are_uploaded_under_their_names(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "in put é.jsonl"
    path.write_bytes(LINE)

    def create(file: Any) -> openai.types.FileObject:
        with OpenAI(base_url=api.origin + "/v1", api_key=api.acme.secret, _strict_response_validation=True) as sdk:
            return sdk.files.create(file=file, purpose="batch")

    with path.open("rb") as opened:
        for file, name in [
            (path, path.name),
            (opened, path.name),
            (("x.jsonl", LINE), "x.jsonl"),
            (("x.jsonl", LINE, "application/jsonl"), "x.jsonl"),
            (LINE, "upload"),
            (io.BytesIO(LINE), "upload"),
        ]:
            made = await asyncio.to_thread(create, file)
            assert (made.filename, made.bytes, made.status, made.purpose) == (name, len(LINE), "processed", "batch")


async def test_an_upload_is_kept_whole_and_hashed(api: Api) -> None:
    content = bytes(range(256)) * 5000

    made = await upload(api, content)

    assert made.bytes == len(content)
    assert await api.deps.blobs.get(f"inputs/{made.id}") == content


@pytest.mark.parametrize("order", [1, -1])
async def test_parts_may_come_in_any_order_and_without_a_length(api: Api, order: int) -> None:
    parts: list[tuple[str, str | None, bytes]] = [("file", "x.jsonl", LINE), ("purpose", None, b"batch")]
    request = form(*parts[::order])

    async def in_small_pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(request["content"]), 7):
            yield request["content"][start : start + 7]

    response = await api.http().post("/v1/files", content=in_small_pieces(), headers=request["headers"])

    assert response.status_code == 200
    assert response.json()["bytes"] == len(LINE)


async def test_a_batch_input_expires_after_thirty_days_unless_it_says_otherwise(api: Api) -> None:
    kept = await upload(api)
    short = await upload(api, expires_after={"anchor": "created_at", "seconds": 3600})
    other = await upload(api, purpose="user_data")

    assert kept.expires_at == kept.created_at + 30 * DAY
    assert short.expires_at == short.created_at + 3600
    assert other.expires_at is None


async def test_a_wrong_field_is_refused_by_its_name_and_leaves_nothing(api: Api) -> None:
    http = api.http()
    file: Part = ("file", "x.jsonl", LINE)
    purpose: Part = ("purpose", None, b"batch")
    anchor: Part = ("expires_after[anchor]", None, b"created_at")
    cases: list[tuple[list[Part], str]] = [
        ([file], "purpose"),
        ([file, ("purpose", None, b"nonsense")], "purpose"),
        ([purpose], "file"),
        ([purpose, ("file", None, LINE)], "file"),
        ([purpose, ("file", "", LINE)], "file"),
        ([purpose, file, file], "file"),
        ([purpose, purpose, file], "purpose"),
        ([file, purpose, ("priority", None, b"9")], "priority"),
        ([file, purpose, anchor], "expires_after.seconds"),
        ([file, purpose, anchor, ("expires_after[seconds]", None, b"3599")], "expires_after.seconds"),
        ([file, purpose, anchor, ("expires_after[seconds]", None, b"2592001")], "expires_after.seconds"),
        ([file, purpose, anchor, ("expires_after[seconds]", None, "٣٦٠٠".encode())], "expires_after.seconds"),
        ([file, purpose, ("expires_after[seconds]", None, b"3600")], "expires_after.anchor"),
    ]
    for parts, param in cases:
        response = await http.post("/v1/files", **form(*parts))
        assert response.status_code == 400, parts
        assert assert_openai_error(response)["param"] == param
    assert await stored(api) == []
    assert (await api.sdk().files.list()).data == []


async def test_what_is_no_form_is_a_400(api: Api) -> None:
    http = api.http()

    for headers, content in [
        ({}, b""),
        ({"Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "multipart/form-data"}, b"--x--"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"nonsense"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b'--x\r\nContent-Disposition: form-data; name="file"'),
    ]:
        response = await http.post("/v1/files", content=content, headers=headers)
        assert response.status_code == 400
        assert_openai_error(response)


async def test_a_file_over_the_limit_is_a_413_and_the_connection_stands(deps: ApiDependencies) -> None:
    settings = ApiSettings(max_upload_bytes=1 << 20)
    big = b"x" * (8 << 20)
    async with running_api(deps, settings=settings) as api:
        http = api.http(limits=httpx2.Limits(max_connections=1))

        with pytest.raises(openai.APIStatusError) as refused:
            await upload(api, big, purpose="batch")
        announced = await http.post("/v1/files", **form(("purpose", None, b"batch"), ("file", "x", big)))
        streamed = await http.post(
            "/v1/files",
            content=_chunks(form(("file", "x", big))["content"]),
            headers=form()["headers"],
        )

        assert (refused.value.status_code, refused.value.code) == (413, "file_too_large")
        assert str(1 << 20) in refused.value.message
        assert (announced.status_code, streamed.status_code) == (413, 413)
        assert (await http.get("/v1/files")).json()["data"] == []
        assert await stored(api) == []


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65536):
        yield content[start : start + 65536]


async def test_an_upload_that_breaks_off_leaves_nothing(api: Api) -> None:
    request = form(("purpose", None, b"batch"), ("file", "x.jsonl", LINE * 1000))

    async def breaking() -> AsyncIterator[bytes]:
        yield request["content"][:50_000]
        raise ConnectionResetError("the client is gone")

    with pytest.raises(ConnectionResetError):
        await api.http().post("/v1/files", content=breaking(), headers=request["headers"])

    assert (await api.http().get("/healthz")).status_code == 200
    assert (await api.sdk().files.list()).data == []
    assert await stored(api) == []


async def test_malformed_lines_and_no_lines_are_accepted_for_now(api: Api) -> None:
    for content in (b"not json\n", b"", b"\xff\xfe\x00"):
        assert (await upload(api, content)).bytes == len(content)


async def test_a_jsonl_suffix_is_asked_for_only_where_the_operator_wants_it(deps: ApiDependencies) -> None:
    async with running_api(deps, settings=ApiSettings(require_jsonl_suffix=True)) as api:
        with pytest.raises(openai.BadRequestError) as refused:
            await upload(api, file=("in.txt", LINE))
        assert "Must be .jsonl" in refused.value.message
        assert (await upload(api, file=("in.jsonl", LINE))).filename == "in.jsonl"
        assert (await upload(api, file=("in.txt", LINE), purpose="user_data")).filename == "in.txt"


async def test_a_file_is_retrieved_with_every_key(api: Api) -> None:
    made = await upload(api)

    found = await api.http().get(f"/v1/files/{made.id}")

    assert list(found.json()) == [
        "id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status", "status_details",
    ]  # fmt: skip
    assert await api.sdk().files.retrieve(made.id) == made
    assert await api.sdk().files.wait_for_processing(made.id) == made


async def test_lists_are_ordered_filtered_and_cut(api: Api) -> None:
    made = [(await upload(api, purpose=purpose)).id for purpose in ("batch", "user_data", "batch")]
    files = api.sdk().files

    async def ids(**query: Any) -> list[str]:
        return [file.id for file in (await files.list(**query)).data]

    assert await ids() == made[::-1]
    assert await ids(order="asc") == made
    assert await ids(purpose="batch") == [made[2], made[0]]
    assert await ids(limit=1) == [made[2]]
    assert await ids(after=made[2]) == [made[1], made[0]]
    assert await ids(after=made[0], order="asc") == [made[1], made[2]]


async def test_paging_shows_every_file_once_and_ends(api: Api) -> None:
    made = [(await upload(api)).id for _ in range(25)]
    asked: list[str] = []

    async def note(request: httpx2.Request) -> None:
        asked.append(request.url.query.decode())

    sdk = api.sdk(http_client=httpx2.AsyncClient(event_hooks={"request": [note]}, trust_env=False, verify=False))
    seen = [file.id async for file in sdk.files.list(limit=10)]

    assert seen == made[::-1]
    assert asked == ["limit=10", f"limit=10&after={seen[9]}", f"limit=10&after={seen[19]}"]


async def test_paging_while_deleting_skips_nothing(api: Api) -> None:
    made = [(await upload(api)).id for _ in range(5)]
    sdk = api.sdk()

    seen = []
    async for file in sdk.files.list(limit=2):
        await sdk.files.delete(file.id)
        seen.append(file.id)

    assert seen == made[::-1]


async def test_an_empty_list_satisfies_a_strict_client(api: Api) -> None:
    page = (await api.http().get("/v1/files")).json()

    assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert (await api.sdk().files.list()).data == []


async def test_a_deleted_file_is_gone_at_once(api: Api) -> None:
    made = await upload(api)
    sdk = api.sdk()

    deleted = await sdk.files.delete(made.id)

    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "file", True)
    for again in (sdk.files.delete, sdk.files.retrieve, sdk.files.content):
        with pytest.raises(openai.NotFoundError) as missing:
            await again(made.id)
        assert missing.value.message.endswith(f"No such File object: {made.id}")
        assert missing.value.param == "id"


async def test_an_expired_file_is_gone_like_a_deleted_one(api: Api) -> None:
    made = await upload(api)
    await api.rows("UPDATE files SET expires_at = now()")

    for gone in (api.sdk().files.delete, api.sdk().files.retrieve, api.sdk().files.content):
        with pytest.raises(openai.NotFoundError):
            await gone(made.id)
    assert (await api.sdk().files.list()).data == []


async def test_deleting_the_input_leaves_its_batch_and_its_bytes(api: Api) -> None:
    batch = await make_batch(api)

    await api.sdk().files.delete(batch.input_file_id)

    assert await api.sdk().batches.retrieve(batch.id) == batch
    assert await api.deps.blobs.get(f"inputs/{batch.input_file_id}") == LINE


async def test_the_same_idempotency_key_makes_one_file(api: Api) -> None:
    options: dict[str, Any] = {"extra_headers": {"Idempotency-Key": "k-1"}}

    first, second = await upload(api, **options), await upload(api, **options)
    with pytest.raises(openai.BadRequestError) as reused:
        await upload(api, b"other\n", **options)

    with pytest.raises(openai.BadRequestError):
        await upload(api, extra_headers={"Idempotency-Key": "x" * 256})

    assert first == second
    assert reused.value.code == "idempotency_key_reused"
    assert await stored(api) == [f"inputs/{first.id}"]


async def test_an_upload_sent_again_by_the_sdk_makes_one_file(api: Api) -> None:
    first = await upload(api)
    again = await upload(api, extra_headers={"x-stainless-retry-count": "1"})
    anew = await upload(api)

    assert first == again
    assert anew.id != first.id
    assert len(await stored(api)) == 2


async def test_an_upload_sent_again_by_the_sdk_whose_file_is_deleted_makes_a_new_one(api: Api) -> None:
    first = await upload(api)
    await api.sdk().files.delete(first.id)

    again = await upload(api, extra_headers={"x-stainless-retry-count": "1"})
    once_more = await upload(api, extra_headers={"x-stainless-retry-count": "2"})

    assert again.id != first.id
    assert once_more == again


async def test_a_store_that_is_down_is_a_503_that_invites_a_retry(api: Api, tmp_path: Path) -> None:
    class Down:
        def writer(self, key: str, *, stage: str) -> Any:
            raise StoreUnavailable("the object store does not answer; try again shortly")

    async with running_api(replace(api.deps, blobs=Down()), names=("initech", "hooli")) as broken:  # type: ignore[arg-type]
        with pytest.raises(openai.InternalServerError) as failed:
            await upload(broken)

    assert failed.value.status_code == 503
    assert float(failed.value.response.headers["retry-after"]) <= 60
    assert (await api.sdk().files.list()).data == []


async def test_uploads_need_no_temporary_folder(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    assert (await upload(api, LINE * 50_000)).bytes == len(LINE) * 50_000


async def test_unknown_files_read_like_malformed_ids(api: Api) -> None:
    for file_id in (UNKNOWN_FILE, "file-doesnotexist", "batch_" + "0" * 32):
        with pytest.raises(openai.NotFoundError) as missing:
            await api.sdk().files.retrieve(file_id)
        assert missing.value.message.endswith(f"No such File object: {file_id}")


async def test_uploads_are_counted(api: Api) -> None:
    await upload(api)

    value = api.deps.metrics.registry.get_sample_value
    assert (value("slackwater_upload_bytes_total") or 0) > len(LINE)
    assert value("slackwater_stage_units_total", {"stage": "intake", "outcome": "done"}) == 1
    labels = {"method": "POST", "route": "/v1/files", "status": "200"}
    assert value("slackwater_http_requests_total", labels) == 1
