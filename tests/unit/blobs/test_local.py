"""What only a local folder can get wrong: power cuts, dead processes, full and unmounted disks."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.blobs.local import LocalFolder
from slackwater.blobs.store import ObjectStore, open_store
from slackwater.domain.errors import ObjectMissing, SetupError, StoreUnavailable

STRACE = shutil.which("strace")


class FsyncRecorder:
    """Notes the path behind each descriptor that is synced, and whether the object had its name by then."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.synced: list[tuple[str, list[str]]] = []
        self.failing: str | None = None

    def __call__(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(self._root)
        kind = "file" if path.parts[:1] == (".staging",) else str(path)
        self.synced.append((kind, objects_in(self._root)))
        if self.failing == kind:
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(descriptor)


def objects_in(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and ".staging" not in path.parts
    )


def staged_in(root: Path) -> list[Path]:
    return [path for path in (root / ".staging").rglob("*") if path.is_file() and path.name != "lock"]


async def write(store: ObjectStore, key: str) -> None:
    async with store.writer(key, stage="s") as writer:
        await writer.write(b"abc")
        await writer.finish()


@pytest.fixture
def recorder(tmp_path: Path) -> FsyncRecorder:
    return FsyncRecorder(tmp_path)


@pytest.fixture
def store(tmp_path: Path, recorder: FsyncRecorder) -> ObjectStore:
    return ObjectStore(LocalFolder(tmp_path, fsync=recorder))


async def test_a_file_is_synced_before_it_gets_its_name_and_its_folders_after(
    store: ObjectStore, recorder: FsyncRecorder
) -> None:
    await store.put("parts/b/1", b"abc", stage="s")

    there = ["parts/b/1"]
    assert recorder.synced == [("file", []), ("parts/b", there), ("parts", there), (".", there)]


async def test_writers_and_joins_sync_too_and_known_folders_only_once(
    store: ObjectStore, recorder: FsyncRecorder
) -> None:
    await store.put("parts/b/1", b"abc", stage="s")
    recorder.synced.clear()

    await write(store, "parts/b/2")
    await store.join("parts/b/3", ["parts/b/1", "parts/b/2"], stage="s")

    assert [kind for kind, _ in recorder.synced] == ["file", "parts/b", "file", "parts/b"]


@pytest.mark.parametrize("failing", ["file", "parts/b"])
async def test_a_disk_that_cannot_sync_makes_the_write_fail_and_leaves_nothing(
    store: ObjectStore, recorder: FsyncRecorder, tmp_path: Path, failing: str
) -> None:
    await store.put("parts/b/1", b"abc", stage="s")
    recorder.failing = failing

    for attempt in (
        store.put("parts/b/2", b"x", stage="s"),
        write(store, "parts/b/3"),
        store.join("parts/b/4", ["parts/b/1"], stage="s"),
    ):
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await attempt

    assert objects_in(tmp_path) == ["parts/b/1"]
    assert staged_in(tmp_path) == []


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
def test_the_system_calls_of_a_put_are_in_the_safe_order(tmp_path: Path) -> None:
    program = (
        "import asyncio\n"
        "from slackwater.blobs.store import open_store\n"
        f"store = open_store({str(tmp_path / 'store')!r})\n"
        "asyncio.run(store.put('parts/b/1', b'abc', stage='s'))\n"
    )
    trace = tmp_path / "trace"
    filters = "trace=fsync,fdatasync,rename,renameat,renameat2,writev"
    subprocess.run(
        [str(STRACE), "-f", "-y", "-o", str(trace), "-e", filters, sys.executable, "-c", program],
        check=True,
        timeout=60,
    )

    calls = [line for line in trace.read_text().splitlines() if str(tmp_path / "store") in line]
    order = [line.split(maxsplit=1)[1].split("(")[0] for line in calls]
    # Two renames: the first finds that the folder has to be made.
    assert order == ["writev", "fsync", "rename", "rename", "fsync", "fsync", "fsync"]
    assert "/.staging/" in calls[1]
    assert "/store/parts/b>" in calls[4]


async def test_a_dead_process_leaves_nothing_for_long(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, signal\n"
        "from slackwater.blobs.store import open_store\n"
        "async def main():\n"
        f"    store = open_store({str(tmp_path)!r})\n"
        "    async with store.writer('inputs/half', stage='s') as writer:\n"
        "        await writer.write(bytes(3 << 20))\n"
        "        await writer.write(bytes(3 << 20))\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await process.wait()
    assert staged_in(tmp_path) != []

    store = open_store(str(tmp_path))

    assert staged_in(tmp_path) == []
    assert objects_in(tmp_path) == []
    await store.close()


async def test_opening_a_store_does_not_harm_another_that_is_being_written(tmp_path: Path) -> None:
    first = open_store(str(tmp_path))
    async with first.writer("inputs/file", stage="s") as writer:
        await writer.write(bytes(3 << 20))

        second = open_store(str(tmp_path))
        await second.put("inputs/other", b"x", stage="s")
        await second.close()

        await writer.finish()
    assert await first.size("inputs/file") == 3 << 20
    await first.close()
    await first.close()


async def test_folders_that_become_empty_go_and_come_back(store: ObjectStore, tmp_path: Path) -> None:
    async def put_and_delete(number: int) -> None:
        await store.put(f"parts/b/{number}", b"x", stage="s")
        await store.delete([f"parts/b/{number}"], stage="s")

    await asyncio.gather(*(put_and_delete(number) for number in range(100)))

    assert [path.name for path in tmp_path.iterdir()] == [".staging"]


async def test_an_unmounted_disk_does_not_read_as_a_deleted_object(store: ObjectStore, tmp_path: Path) -> None:
    await store.put("inputs/file", b"x", stage="s")
    with pytest.raises(ObjectMissing):
        await store.get("inputs/other")

    tmp_path.rename(tmp_path.with_name("elsewhere"))

    with pytest.raises(StoreUnavailable):
        await store.get("inputs/file")


def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreUnavailable, match="Not a directory"):
        open_store(f"file://{tmp_path}/file/store")


@pytest.mark.parametrize("url", ["", "s3://", "s3://key:secret@bucket", "gs://bucket", "file://host/x", "http://x/y"])
def test_other_urls_are_refused_without_showing_them(url: str) -> None:
    with pytest.raises(SetupError) as caught:
        open_store(url)

    assert "secret" not in str(caught.value)
