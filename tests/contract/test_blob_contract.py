"""What holds for every object store: a local folder, SeaweedFS, and moto inside this process."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slackwater.blobs.protocol import BlobStore, StoredObject
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.store import open_store
from slackwater.domain.errors import ObjectMissing, StoreUnavailable

if TYPE_CHECKING:  # imported for good, a plugin would come too late to have its asserts rewritten
    from tests.s3 import S3Server

pytest_plugins = ("tests.s3",)

MIB = 1 << 20
STAGE = "test.write"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a store keeps its objects, for tests that look behind it."""

    url: str
    settings: StoreSettings
    server: "S3Server | None"

    def leftovers(self) -> list[str]:
        """What is neither an object nor part of an empty store: files, or uploads that were never completed."""
        if self.server is None:
            return [str(path) for path in Path(self.url).rglob("*") if path.is_file() and path.name != "lock"]
        bucket, prefix = self.url.removeprefix("s3://").split("/")
        with self.server.client() as client:
            uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
        return [upload["Key"] for upload in uploads]


@pytest.fixture(params=["local", "seaweedfs", "moto"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(url=str(tmp_path / "store"), settings=StoreSettings(), server=None)
    server: S3Server = request.getfixturevalue({"seaweedfs": "seaweedfs", "moto": "moto_server"}[request.param])
    return Place(url=server.new_url(), settings=server.settings(), server=server)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[BlobStore]:
    store = open_store(place.url, settings=place.settings)
    yield store
    await store.close()


def some_bytes(length: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(length)


async def listed(store: BlobStore, prefix: str = "") -> list[StoredObject]:
    return sorted([stored async for stored in store.list(prefix)], key=lambda stored: stored.key)


async def whole(store: BlobStore, key: str, **bounds: int) -> bytes:
    return b"".join([piece async for piece in store.read(key, **bounds)])


async def test_what_was_put_is_read_back(store: BlobStore) -> None:
    data = some_bytes(300_000)

    written = await store.put("parts/a/1.out", data, stage=STAGE)

    assert (written.size_bytes, written.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert await store.get("parts/a/1.out") == data
    assert await store.size("parts/a/1.out") == len(data)


async def test_a_second_put_replaces_the_first(store: BlobStore) -> None:
    await store.put("parts/a/1.out", b"first, and longer", stage=STAGE)
    await store.put("parts/a/1.out", b"second", stage=STAGE)

    assert await store.get("parts/a/1.out") == b"second"


async def test_an_empty_object_is_an_object(store: BlobStore) -> None:
    written = await store.put("outputs/empty.err", b"", stage=STAGE)

    assert written.size_bytes == 0
    assert await store.get("outputs/empty.err") == b""
    assert await store.size("outputs/empty.err") == 0
    assert await store.get_range("outputs/empty.err", 0, 10) == b""
    assert await whole(store, "outputs/empty.err") == b""


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, 3, b"abc"), (2, 4, b"cdef"), (5, 100, b"f"), (6, 1, b""), (60, 1, b""), (3, 0, b"")],
)
async def test_a_range_is_short_only_at_the_end(store: BlobStore, start: int, length: int, expected: bytes) -> None:
    await store.put("inputs/file", b"abcdef", stage=STAGE)

    assert await store.get_range("inputs/file", start, length) == expected
    assert await whole(store, "inputs/file", start=start, length=length) == expected


async def test_a_missing_object_is_missing_to_every_reader(store: BlobStore) -> None:
    await store.put("inputs/there", b"x", stage=STAGE)

    for read in (store.get("inputs/gone"), store.size("inputs/gone"), store.get_range("inputs/gone", 0, 5)):
        with pytest.raises(ObjectMissing, match="inputs/gone"):
            await read
    with pytest.raises(ObjectMissing):
        await whole(store, "inputs/gone")
    with pytest.raises(ObjectMissing):
        await store.join("outputs/all", ["inputs/there", "inputs/gone"], stage=STAGE)
    assert [stored.key for stored in await listed(store)] == ["inputs/there"]


async def test_deleting_twice_is_fine(store: BlobStore) -> None:
    for number in range(3):
        await store.put(f"parts/a/{number}", b"x", stage=STAGE)

    await store.delete(["parts/a/0", "parts/a/1", "parts/never"], stage=STAGE)
    await store.delete(["parts/a/0", "parts/a/1", "parts/never"], stage=STAGE)
    await store.delete([], stage=STAGE)

    assert [stored.key for stored in await listed(store)] == ["parts/a/2"]


async def test_a_listing_shows_one_folder_and_what_is_below(store: BlobStore) -> None:
    for key in ("parts/a/1.out", "parts/a/deep/2.out", "parts/ab/3.out", "plans/a/4.plan"):
        await store.put(key, key.encode(), stage=STAGE)

    found = await listed(store, "parts/a/")

    assert [(stored.key, stored.size_bytes) for stored in found] == [("parts/a/1.out", 13), ("parts/a/deep/2.out", 18)]
    assert found[0].modified_at.tzinfo is not None
    assert await listed(store, "parts/a") == found
    assert await listed(store, "nowhere") == []
    assert len(await listed(store)) == 4


async def test_a_stream_is_exact_from_any_start(store: BlobStore) -> None:
    data = some_bytes(3 * MIB + 17)
    await store.put("inputs/big", data, stage=STAGE)

    assert await whole(store, "inputs/big") == data
    assert await whole(store, "inputs/big", start=MIB - 1, length=MIB + 2) == data[MIB - 1 : 2 * MIB + 1]
    assert await whole(store, "inputs/big", start=3 * MIB) == data[3 * MIB :]
    assert max([len(piece) async for piece in store.read("inputs/big")]) <= 2 * MIB


async def test_a_stream_of_a_vanished_object_raises(store: BlobStore) -> None:
    await store.put("inputs/big", some_bytes(6 * MIB), stage=STAGE)
    got = 0

    with pytest.raises(ObjectMissing):  # noqa: PT012 (the loop is the reader)
        async for piece in store.read("inputs/big"):
            got += len(piece)
            await store.delete(["inputs/big"], stage=STAGE)

    assert 0 < got < 6 * MIB


async def test_a_stream_may_be_left_early(store: BlobStore) -> None:
    await store.put("inputs/big", some_bytes(4 * MIB), stage=STAGE)

    async with aclosing(store.read("inputs/big")) as pieces:  # type: ignore[type-var]
        async for _ in pieces:
            break

    assert await store.size("inputs/big") == 4 * MIB


@pytest.mark.parametrize("sizes", [[], [0], [5], [100_000] * 30, [5 * MIB, 1, 9 * MIB, 3]])
async def test_a_writer_writes_what_it_was_given(store: BlobStore, sizes: list[int]) -> None:
    pieces = [some_bytes(size, seed) for seed, size in enumerate(sizes)]

    async with store.writer("inputs/file", stage=STAGE) as writer:
        for piece in pieces:
            await writer.write(memoryview(bytearray(piece)))
        written = await writer.finish()

    data = b"".join(pieces)
    assert (written.size_bytes, written.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert await whole(store, "inputs/file") == data


async def test_an_object_is_not_there_before_its_writer_finishes(store: BlobStore) -> None:
    async with store.writer("inputs/file", stage=STAGE) as writer:
        await writer.write(some_bytes(12 * MIB))
        assert await listed(store) == []
        with pytest.raises(ObjectMissing):
            await store.size("inputs/file")
        await writer.finish()

    assert await store.size("inputs/file") == 12 * MIB


@pytest.mark.parametrize("length", [0, 10, 2 * MIB, 20 * MIB])
async def test_an_aborted_writer_leaves_nothing(store: BlobStore, place: Place, length: int) -> None:
    with suppress(ConnectionResetError):
        async with store.writer("inputs/file", stage=STAGE) as writer:
            await writer.write(some_bytes(length))
            raise ConnectionResetError
    async with store.writer("inputs/other", stage=STAGE) as writer:
        await writer.write(some_bytes(length))

    assert await listed(store) == []
    assert place.leftovers() == []


async def test_a_cancelled_writer_leaves_nothing(store: BlobStore, place: Place) -> None:
    begun = asyncio.Event()

    async def write_for_ever() -> None:
        async with store.writer("inputs/file", stage=STAGE) as writer:
            for number in range(10_000):
                await writer.write(some_bytes(MIB))
                if number == 12:
                    begun.set()

    task = asyncio.create_task(write_for_ever())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await listed(store) == []
    assert place.leftovers() == []


async def test_a_large_writer_keeps_memory_flat(store: BlobStore, place: Place) -> None:
    if place.server is not None and not place.server.checks_keys:
        pytest.skip("moto keeps its objects in this process")
    piece = some_bytes(64 * 1024)
    digest = hashlib.sha256()
    before = reset_peak_memory()

    async with store.writer("inputs/large", stage=STAGE) as writer:
        for number in range(640):
            fresh = number.to_bytes(4, "big") + piece
            digest.update(fresh)
            await writer.write(fresh)
        written = await writer.finish()

    assert peak_memory() - before < 28 * MIB
    assert written.size_bytes == 640 * (len(piece) + 4)
    assert written.sha256 == digest.hexdigest()


async def test_a_join_is_its_parts_in_order(store: BlobStore) -> None:
    sizes = [0, 1, 700_000, 3, 6 * MIB, 0, 700_000, 2 * MIB, 17]
    parts = {f"parts/b/{number}": some_bytes(size, number) for number, size in enumerate(sizes)}
    for key, data in parts.items():
        await store.put(key, data, stage=STAGE)

    written = await store.join("outputs/b.out", list(parts), stage=STAGE)

    data = b"".join(parts.values())
    assert (written.size_bytes, written.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert await whole(store, "outputs/b.out") == data


async def test_a_join_of_many_tiny_parts_and_of_none(store: BlobStore) -> None:
    parts = [f"parts/b/{number}" for number in range(60)]
    await asyncio.gather(*(store.put(key, key.encode() + b"\n", stage=STAGE) for key in parts))

    await store.join("outputs/b.out", parts, stage=STAGE)
    await store.join("outputs/none.out", [], stage=STAGE)

    assert (await store.get("outputs/b.out")).decode().split() == parts
    assert await store.get("outputs/none.out") == b""


async def test_many_tasks_may_use_a_store_at_once(store: BlobStore) -> None:
    async def one(number: int) -> bool:
        key, data = f"parts/p{number % 5}/{number}", some_bytes(50_000 + number, number)
        async with store.writer(key, stage=STAGE) as writer:
            await writer.write(data)
            await writer.finish()
        return await whole(store, key) == data

    assert all(await asyncio.gather(*(one(number) for number in range(40))))


async def test_wrong_credentials_make_the_store_unavailable_and_stay_secret(place: Place) -> None:
    if place.server is None or not place.server.checks_keys:
        pytest.skip("this store checks no keys")
    store = open_store(place.url, settings=place.server.settings(secret="a-wrong-secret"))

    async def write() -> None:
        async with store.writer("inputs/file", stage=STAGE) as writer:
            await writer.write(some_bytes(12 * MIB))
            await writer.finish()

    for attempt in (store.put("a", b"x", stage=STAGE), store.get("a"), write(), store.join("b", ["a"], stage=STAGE)):
        with pytest.raises(StoreUnavailable) as caught:
            await attempt
        assert "refused our credentials" in str(caught.value)
        assert "a-wrong-secret" not in repr(caught.value)
        assert "127.0.0.1" not in str(caught.value)
        assert caught.value.__cause__ is not None
    with pytest.raises(StoreUnavailable):
        await listed(store)
    await store.close()


async def test_a_missing_bucket_is_not_a_missing_object(place: Place) -> None:
    if place.server is None:
        pytest.skip("a folder is made when it is opened")
    store = open_store("s3://no-such-bucket", settings=place.settings)

    for attempt in (store.put("a", b"x", stage=STAGE), store.get("a"), store.join("b", ["a"], stage=STAGE)):
        with pytest.raises(StoreUnavailable):
            await attempt
    await store.close()


def reset_peak_memory() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def peak_memory() -> int:
    """The most memory this process has held since the last reset, in bytes."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
