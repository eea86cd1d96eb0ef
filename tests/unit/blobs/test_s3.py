"""An S3 server that is not there: said within the bound that the settings give, by every operation."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slackwater.blobs.bucket import prepare_bucket
from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.store import open_store
from slackwater.domain.errors import StoreUnavailable


@pytest.fixture
def settings() -> Iterator[StoreSettings]:
    """A port that is taken and never answers: nobody else can come to listen on it meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield StoreSettings(
            endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}",
            access_key_id="key",
            secret_access_key="s3cr3t",
            allow_http=True,
            max_retries=1,
            retry_seconds=1,
            connect_timeout_seconds=1,
        )


async def write(store: BlobStore) -> None:
    async with store.writer("inputs/a", stage="s") as writer:
        await writer.write(bytes(12 << 20))
        await writer.finish()


async def stream(store: BlobStore) -> None:
    async for _ in store.read("inputs/a"):
        pass


async def show(store: BlobStore) -> None:
    async for _ in store.list("inputs"):
        pass


async def test_a_server_that_is_gone_makes_every_operation_fail_soon(settings: StoreSettings) -> None:
    store = open_store("s3://bucket/prefix", settings=settings)
    started = time.monotonic()

    for attempt in (
        store.put("inputs/a", b"x", stage="s"),
        write(store),
        store.get("inputs/a"),
        store.get_range("inputs/a", 0, 1),
        store.size("inputs/a"),
        stream(store),
        store.join("outputs/a", ["inputs/a"], stage="s"),
        store.delete(["inputs/a"], stage="s"),
        show(store),
        prepare_bucket("s3://bucket", settings=settings),
    ):
        with pytest.raises(StoreUnavailable) as caught:
            await attempt
        assert "s3cr3t" not in str(caught.value)
        assert "127.0.0.1" not in str(caught.value)

    assert time.monotonic() - started < 30
    await store.close()


async def test_plain_http_has_to_be_allowed(settings: StoreSettings) -> None:
    store = open_store("s3://bucket", settings=replace(settings, allow_http=False))

    with pytest.raises(StoreUnavailable):
        await store.get("inputs/a")
    await store.close()
