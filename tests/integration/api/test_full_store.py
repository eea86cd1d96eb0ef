"""An upload that finds no room: a clear answer, and nothing left behind. A local store on a disk that is full."""

import errno
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import openai
import pytest

from slackwater.api.dependencies import ApiDependencies
from slackwater.blobs.local import LocalFolder
from slackwater.blobs.store import ObjectStore
from tests.api_under_test import running_api
from tests.integration.api.test_files import upload


class FullDisk:
    """An fsync that finds the disk full until there is room: where delayed allocation tells it."""

    def __init__(self) -> None:
        self.full = True

    def __call__(self, descriptor: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)


async def files_below(root: Path, store: ObjectStore) -> AsyncIterator[str]:
    async for stored in store.list(""):
        yield stored.key
    for path in (root / ".staging").rglob("*"):
        if path.is_file() and path.name != "lock":
            yield str(path)


async def test_an_upload_to_a_full_store_is_a_507_and_leaves_nothing(deps: ApiDependencies, tmp_path: Path) -> None:
    disk = FullDisk()
    root = tmp_path / "full"
    store = ObjectStore(LocalFolder(root, fsync=disk))
    async with running_api(replace(deps, blobs=store)) as api:
        with pytest.raises(openai.InternalServerError) as refused:
            await upload(api, b"x" * (3 << 20))

        assert refused.value.status_code == 507
        assert "full" in refused.value.message
        assert refused.value.response.headers["retry-after"] == "30"
        assert [left async for left in files_below(root, store)] == []
        assert (await api.rows("SELECT count(*) AS n FROM files"))[0].n == 0

        disk.full = False
        made = await upload(api, b"x" * (3 << 20))
        assert made.bytes == 3 << 20
    await store.close()
