"""Every write and delete passes the seam, and every operation is told to the observer."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.store import open_store
from slackwater.domain.errors import ObjectMissing, StoreUnavailable


class RecordingSeam:
    """Notes what passes, and fails where it is told to."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.passed: list[tuple[str, str, str, bool]] = []
        self.fail_at: tuple[str, str] | None = None

    async def before(self, stage: str, key: str) -> None:
        self._note("before", stage, key)

    async def after(self, stage: str, key: str) -> None:
        self._note("after", stage, key)

    def _note(self, half: str, stage: str, key: str) -> None:
        self.passed.append((half, stage, key, (self._root / key).exists()))
        if self.fail_at == (half, stage):
            raise StoreUnavailable("a fault, on purpose")


class RecordingObserver:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bool]] = []

    def observed(self, op: str, seconds: float, size_bytes: int, *, ok: bool) -> None:
        assert seconds >= 0
        self.seen.append((op, size_bytes, ok))


@pytest.fixture
def seam(tmp_path: Path) -> RecordingSeam:
    return RecordingSeam(tmp_path)


@pytest.fixture
def observer() -> RecordingObserver:
    return RecordingObserver()


@pytest.fixture
async def store(tmp_path: Path, seam: RecordingSeam, observer: RecordingObserver) -> AsyncIterator[BlobStore]:
    store = open_store(str(tmp_path), seam=seam, observer=observer)
    yield store
    await store.close()


async def write(store: BlobStore, key: str, stage: str) -> None:
    async with store.writer(key, stage=stage) as writer:
        await writer.write(b"abc")
        await writer.finish()


async def test_each_change_passes_before_it_happens_and_after_it_is_there(
    store: BlobStore, seam: RecordingSeam
) -> None:
    await store.put("a", b"abc", stage="s.put")
    await write(store, "b", "s.write")
    await store.join("c", ["a", "b"], stage="s.join")
    await store.delete(["a", "b"], stage="s.delete")

    assert seam.passed == [
        ("before", "s.put", "a", False),
        ("after", "s.put", "a", True),
        ("before", "s.write", "b", False),
        ("after", "s.write", "b", True),
        ("before", "s.join", "c", False),
        ("after", "s.join", "c", True),
        ("before", "s.delete", "a", True),
        ("before", "s.delete", "b", True),
        ("after", "s.delete", "a", False),
        ("after", "s.delete", "b", False),
    ]


async def test_reads_do_not_pass_the_seam(store: BlobStore, seam: RecordingSeam) -> None:
    await store.put("a", b"abc", stage="s.put")
    seam.passed.clear()

    await store.get("a")
    await store.size("a")
    await store.get_range("a", 0, 2)
    assert [stored.key async for stored in store.list("")] == ["a"]
    assert [piece async for piece in store.read("a")] == [b"abc"]

    assert seam.passed == []


async def test_a_fault_before_a_write_leaves_nothing(store: BlobStore, seam: RecordingSeam) -> None:
    seam.fail_at = ("before", "s")

    for attempt in (store.put("a", b"abc", stage="s"), write(store, "b", "s"), store.join("c", [], stage="s")):
        with pytest.raises(StoreUnavailable, match="on purpose"):
            await attempt

    assert [stored async for stored in store.list("")] == []


async def test_a_fault_after_a_write_leaves_the_whole_object(store: BlobStore, seam: RecordingSeam) -> None:
    seam.fail_at = ("after", "s")

    for attempt in (store.put("a", b"abc", stage="s"), write(store, "b", "s")):
        with pytest.raises(StoreUnavailable, match="on purpose"):
            await attempt

    assert await store.get("a") == await store.get("b") == b"abc"


async def test_the_observer_hears_of_every_operation(store: BlobStore, observer: RecordingObserver) -> None:
    await store.put("a", b"abc", stage="s")
    await write(store, "b", "s")
    await store.join("c", ["a", "b"], stage="s")
    await store.get("a")
    await store.get_range("c", 1, 2)
    await store.size("a")
    assert [piece async for piece in store.read("c")] == [b"abcabc"]
    assert len([stored async for stored in store.list("")]) == 3
    await store.delete(["a"], stage="s")
    with suppress(ObjectMissing):
        await store.get("a")

    assert observer.seen == [
        ("put", 3, True),
        ("write", 3, True),
        ("join", 6, True),
        ("get", 3, True),
        ("get_range", 2, True),
        ("size", 0, True),
        ("read", 6, True),
        ("list", 0, True),
        ("delete", 0, True),
        ("get", 0, False),
    ]
