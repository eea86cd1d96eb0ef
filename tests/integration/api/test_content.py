"""The bytes of a file: whole, in part, streamed, broken off."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from slackwater.api.dependencies import ApiDependencies
from slackwater.blobs.protocol import BlobStore
from slackwater.domain.errors import ObjectMissing, StoreUnavailable
from tests.api_under_test import Api, running_api
from tests.integration.api.test_files import upload
from tests.integration.api.test_transport import UNKNOWN_FILE, assert_openai_error

TEXT = "日本語 😀 a\u2028b\u0085c\n".encode()


async def test_every_way_of_the_sdk_gives_the_bytes_exactly(api: Api, tmp_path: Path) -> None:
    made = await upload(api, TEXT)
    sdk = api.sdk()

    content = await sdk.files.content(made.id)
    content.write_to_file(tmp_path / "whole")
    async with sdk.files.with_streaming_response.content(made.id) as streamed:
        await streamed.stream_to_file(tmp_path / "streamed")

    assert content.content == content.read() == TEXT
    assert content.text == TEXT.decode()
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "streamed").read_bytes() == TEXT


async def test_the_head_says_what_comes(api: Api) -> None:
    made = await upload(api, TEXT, file=('日本 "x".jsonl', TEXT))
    http = api.http()

    got = await http.get(f"/v1/files/{made.id}/content", headers={"Accept": "application/binary"})
    head = await http.head(f"/v1/files/{made.id}/content")

    assert got.content == TEXT
    assert head.content == b""
    for response in (got, head):
        assert response.status_code == 200
        assert response.headers["content-length"] == str(len(TEXT))
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["etag"] == f'"{hashlib.sha256(TEXT).hexdigest()}"'
        assert response.headers["accept-ranges"] == "bytes"
        assert response.headers["content-disposition"] == (
            "attachment; filename=\"__ _x_.jsonl\"; filename*=UTF-8''%E6%97%A5%E6%9C%AC%20%22x%22.jsonl"
        )
        assert response.headers["x-request-id"].startswith("req_")


async def test_a_range_gives_that_part_of_the_content_that_is_known(api: Api) -> None:
    content = bytes(range(200))
    made = await upload(api, content)
    http = api.http()
    etag = f'"{hashlib.sha256(content).hexdigest()}"'

    async def get(**headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await http.get(f"/v1/files/{made.id}/content", headers=named)

    part = await get(range="bytes=0-9")
    assert (part.status_code, part.content) == (206, content[:10])
    assert part.headers["content-range"] == "bytes 0-9/200"
    assert (await get(range="bytes=190-")).content == content[190:]
    assert (await get(range="bytes=-3")).content == content[-3:]
    assert (await get(range="bytes=150-9999")).content == content[150:]
    assert (await get(range="bytes=0-1", if_range=etag)).status_code == 206
    assert (await get(range="bytes=0-1", if_range='"other"')).content == content
    assert (await get(range="bytes=0-1,5-6")).content == content
    assert (await get(if_none_match=etag)).status_code == 304
    behind = await get(range="bytes=200-")
    assert behind.status_code == 416
    assert behind.headers["content-range"] == "bytes */200"
    assert_openai_error(behind)


async def test_a_range_passes_through_the_sdk(api: Api) -> None:
    made = await upload(api, bytes(range(200)))

    assert (await api.sdk().files.content(made.id, extra_headers={"Range": "bytes=5-6"})).content == b"\5\6"


async def test_an_empty_file_has_empty_content(api: Api) -> None:
    made = await upload(api, b"")

    assert (await api.sdk().files.content(made.id)).content == b""


async def test_a_large_download_is_exact(api: Api, tmp_path: Path) -> None:
    content = hashlib.shake_256(b"seed").digest(20 << 20)
    made = await upload(api, content)

    async with api.sdk().files.with_streaming_response.content(made.id) as streamed:
        digest = hashlib.sha256()
        async for piece in streamed.iter_bytes():
            digest.update(piece)

    assert digest.digest() == hashlib.sha256(content).digest()


async def test_content_of_a_file_that_is_not_there_is_a_json_404(api: Api) -> None:
    for file_id in (UNKNOWN_FILE, "nonsense"):
        with pytest.raises(openai.NotFoundError) as missing:
            await api.sdk().files.content(file_id)
        assert_openai_error(missing.value.response)


class Reading:
    """A store that reads as it is told and does all else like the real one."""

    def __init__(self, store: BlobStore, pieces: int, error: Exception | None) -> None:
        self._store = store
        self._pieces = pieces
        self._error = error
        self.closed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        try:
            for _ in range(self._pieces):
                yield b"x" * 65536
            if self._error is not None:
                raise self._error
        finally:
            self.closed.set()


def reading(deps: ApiDependencies, pieces: int, error: Exception | None) -> tuple[ApiDependencies, Reading]:
    store = Reading(deps.blobs, pieces, error)
    return replace(deps, blobs=store), store


async def test_a_read_that_fails_half_way_breaks_the_connection(deps: ApiDependencies) -> None:
    deps, _ = reading(deps, 3, StoreUnavailable("the object store does not answer; try again shortly"))
    async with running_api(deps) as api:
        made = await upload(api, bytes(10 * 65536))

        with pytest.raises(httpx2.RemoteProtocolError):
            await api.http().get(f"/v1/files/{made.id}/content")

        assert (await api.http().get("/healthz")).status_code == 200


async def test_the_stock_client_sees_an_error_and_no_file_where_a_read_fails(
    deps: ApiDependencies, tmp_path: Path
) -> None:
    deps, _ = reading(deps, 3, StoreUnavailable("the object store does not answer; try again shortly"))
    async with running_api(deps) as api:
        made = await upload(api, bytes(10 * 65536))

        with pytest.raises(openai.APIConnectionError):
            await api.sdk().files.content(made.id)
        with pytest.raises(httpx2.RemoteProtocolError):
            async with api.sdk().files.with_streaming_response.content(made.id) as streamed:
                await streamed.stream_to_file(tmp_path / "torso")


async def test_a_store_that_is_down_at_the_start_is_a_503(deps: ApiDependencies) -> None:
    deps, _ = reading(deps, 0, StoreUnavailable("the object store does not answer; try again shortly"))
    async with running_api(deps) as api:
        made = await upload(api)

        with pytest.raises(openai.InternalServerError) as failed:
            await api.sdk().files.content(made.id)

    assert failed.value.status_code == 503
    assert_openai_error(failed.value.response)


async def test_bytes_that_are_lost_are_a_500_that_says_nothing_but_its_id(deps: ApiDependencies) -> None:
    deps, _ = reading(deps, 0, ObjectMissing("inputs/secret-key-name"))
    async with running_api(deps) as api:
        made = await upload(api)
        response = await api.http().get(f"/v1/files/{made.id}/content")
        error = assert_openai_error(response)

    assert response.status_code == 500
    assert "secret-key-name" not in error["message"]
    assert response.headers["x-request-id"] in error["message"]


async def test_bytes_purged_since_the_row_was_read_are_a_404(deps: ApiDependencies) -> None:
    class Purging(Reading):
        async def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
            await deps.db.fetch("test", "UPDATE files SET deleted_at = now()", {})
            async for piece in super().read(key):
                yield piece

    async with running_api(replace(deps, blobs=Purging(deps.blobs, 0, ObjectMissing("inputs/x")))) as api:
        made = await upload(api)

        with pytest.raises(openai.NotFoundError):
            await api.sdk().files.content(made.id)


async def test_a_client_that_leaves_ends_the_reading(deps: ApiDependencies) -> None:
    deps, store = reading(deps, 100_000, None)
    async with running_api(deps) as api:
        made = await upload(api, b"")
        await api.rows("UPDATE files SET size_bytes = 6553600000")

        async with api.http().stream("GET", f"/v1/files/{made.id}/content") as response:
            assert response.status_code == 200
        async with asyncio.timeout(10):
            await store.closed.wait()
