"""Half-made objects of writers that died go; those of live ones stay. A local folder, SeaweedFS and moto."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slackwater.blobs.abort_uploads import Errand, abort_uploads
from slackwater.blobs.leftovers import remove_leftovers
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.staging import FOLDER
from slackwater.blobs.store import open_store
from slackwater.domain.errors import StoreUnavailable
from tests.s3 import BUCKET, S3Server

LONG_AGO = timedelta(days=1)
HALF_AN_OBJECT = """
import asyncio, sys
from slackwater.blobs.store import open_store

async def write():
    async with open_store(sys.argv[1]).writer("inputs/x", stage="test") as writer:
        for _ in range(3):
            await writer.write(b"x" * (1 << 20))
        sys.stdout.write("written\\n")
        sys.stdout.flush()
        await asyncio.sleep(600)

asyncio.run(write())
"""


@pytest.fixture(params=["seaweedfs", "moto_server"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


def begin(server: S3Server, key: str) -> None:
    """Begin an upload, write a part of it, and leave it."""
    with server.client() as client:
        upload = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 100)


def unfinished(server: S3Server, prefix: str) -> set[str]:
    with server.client() as client:
        found = client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix)
    return {upload["Key"] for upload in found.get("Uploads", ())}


async def test_an_upload_that_nobody_goes_on_with_is_aborted_and_others_are_not(server: S3Server) -> None:
    url = server.new_url()
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    begin(server, f"{prefix}/inputs/left")
    begin(server, f"{prefix}/not-ours/left")
    now = datetime.now(UTC)

    kept = await remove_leftovers(url, settings=server.settings(), untouched_since=now - LONG_AGO)
    still = unfinished(server, f"{prefix}/inputs/")
    removed = await remove_leftovers(url, settings=server.settings(), untouched_since=now + LONG_AGO)
    again = await remove_leftovers(url, settings=server.settings(), untouched_since=now + LONG_AGO)

    assert (kept, removed, again) == (0, 1, 0)
    assert still == {f"{prefix}/inputs/left"}
    assert unfinished(server, f"{prefix}/inputs/") == set()
    assert unfinished(server, f"{prefix}/not-ours/") == {f"{prefix}/not-ours/left"}


def test_one_pass_aborts_no_more_than_it_may(server: S3Server) -> None:
    prefix = server.new_url().removeprefix(f"s3://{BUCKET}/")
    for n in range(3):
        begin(server, f"{prefix}/parts/{n}")
    errand = Errand(
        bucket=BUCKET,
        prefix=prefix,
        settings=server.settings(),
        untouched_since=datetime.now(UTC) + LONG_AGO,
        limit=2,
    )

    assert [abort_uploads(errand) for _ in range(3)] == [2, 1, 0]


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    settings = StoreSettings(
        endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b", allow_http=True, max_retries=0
    )

    with pytest.raises(StoreUnavailable):
        await remove_leftovers("s3://bucket", settings=settings, untouched_since=datetime.now(UTC))


async def test_staged_files_of_a_killed_process_go_and_those_of_a_live_one_stay(tmp_path: Path) -> None:
    async def sweep() -> int:
        return await remove_leftovers(str(tmp_path), settings=StoreSettings(), untouched_since=datetime.now(UTC))

    pipe = asyncio.subprocess.PIPE
    dying = await asyncio.create_subprocess_exec(sys.executable, "-c", HALF_AN_OBJECT, str(tmp_path), stdout=pipe)
    assert dying.stdout is not None
    store = open_store(str(tmp_path))
    try:
        assert await dying.stdout.readline() == b"written\n"
        async with store.writer("inputs/y", stage="test") as writer:
            await writer.write(b"y" * (2 << 20))
            beside_both = await sweep()
            dying.kill()
            await dying.wait()
            beside_one = await asyncio.gather(sweep(), sweep())
            await writer.finish()

        assert (beside_both, sum(beside_one)) == (0, 1)
        assert len([place for place in (tmp_path / FOLDER).iterdir() if place.is_dir()]) == 1
        assert await store.size("inputs/y") == 2 << 20
    finally:
        if dying.returncode is None:
            dying.kill()
            await dying.wait()
        await store.close()
