"""The order of a commit's system calls, as the kernel saw it: file, name, folder, and only then the pointer."""

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest

from slackwater.db.session import Database

COMMIT = """
import asyncio, sys
from slackwater.blobs.store import open_store
from slackwater.db.session import Database

async def commit():
    store = open_store(sys.argv[1])
    database = Database.connect(sys.argv[2])
    async with database.driver_transaction("test") as transaction:
        await transaction.fetch("SELECT 1", {})
    written = await store.put("parts/b/0-t.out", b"result", stage="work.part")
    statement = "INSERT INTO audit_log (actor, action, subject) VALUES ('test', 'commit', %(sha256)s) RETURNING id"
    await database.fetch("work.commit", statement, {"sha256": written.sha256})
    await store.close()
    await database.close()

asyncio.run(commit())
"""
CALLS = "trace=openat,fsync,fdatasync,rename,renameat,renameat2,sendto,write"


async def test_file_and_folder_are_synced_before_the_pointer_is_committed(
    db: Database, database_url: str, tmp_path: Path
) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"

    traced = await asyncio.create_subprocess_exec(
        *(strace, "-f", "-y", "-s", "400", "-e", CALLS, "-o", str(trace)),
        *(sys.executable, "-c", COMMIT, str(tmp_path / "objects"), database_url),
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await asyncio.wait_for(traced.communicate(), 300)

    if b"ptrace" in complaint.lower() and traced.returncode:
        pytest.skip("this machine allows no tracing")
    assert traced.returncode == 0, complaint.decode()
    calls = trace.read_text()
    objects = re.escape(str(tmp_path / "objects"))
    synced_file = re.search(rf"fsync\(\d+<{objects}/\.staging/[^>]*/0>\)", calls)
    renamed = re.search(rf'rename\w*\(.*"{objects}/parts/b/0-t\.out"', calls)
    synced_folder = re.search(rf"fsync\(\d+<{objects}/parts/b>\)", calls)
    pointer = re.search(r"(sendto|write)\(.*INSERT INTO audit_log", calls)
    assert synced_file
    assert renamed
    assert synced_folder
    assert pointer
    assert synced_file.start() < renamed.start() < synced_folder.start() < pointer.start()
