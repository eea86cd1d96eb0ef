"""Objects as files of one folder.

Bytes are moved by plain system calls in a few threads, not by obstore: reading and writing cost two thirds of what they
cost there, the hash rides along in the same thread, and only this way a file can be fsynced before it is renamed
(``staging``; the figures are in docs/decisions). obstore lists the folder.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, Unpack

import obstore
from obstore.store import LocalStore

from slackwater.blobs.backend import Fetched
from slackwater.blobs.failures import reading, unavailable, writing
from slackwater.blobs.local_writer import LocalWriter
from slackwater.blobs.protocol import Checksum, StoredObject, Written
from slackwater.blobs.staging import FOLDER, Staging
from slackwater.blobs.verifying import require_intact
from slackwater.domain.errors import ObjectMissing

PIECE_BYTES: Final = 1 << 20
# Small puts spend their time waiting for fsync, and the file system commits the fsyncs that wait together as one.
THREADS: Final = 8
LIST_CHUNK: Final = 500

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class LocalFolder:
    """A Backend on a folder, which is made if it does not exist. Other processes may use the same folder."""

    piece_bytes: Final = PIECE_BYTES

    def __init__(self, root: Path, *, fsync: Callable[[int], None] = os.fsync) -> None:
        self._root = root
        with writing(str(root)):
            self._staging = Staging(root, fsync=fsync)
        self._names = LocalStore(root)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")

    async def put(self, key: str, data: bytes) -> Written:
        """Write a small object whole: one trip to a thread."""
        with writing(key):
            return await self._in_thread(self._put, key, data)

    def writer(self, key: str) -> LocalWriter:
        """Make a writer; no I/O yet."""
        return LocalWriter(self._staging.create(), key, self._pool)

    async def get(self, key: str) -> bytes:
        """Read a small object whole. Raises ObjectMissing."""
        with self._reading(key):
            return await self._in_thread((self._root / key).read_bytes)

    async def fetch(self, key: str, start: int, length: int) -> Fetched:
        """Read a run of bytes. Raises ObjectMissing."""
        with self._reading(key):
            return await self._in_thread(self._fetch, key, start, length)

    async def size(self, key: str) -> int:
        """Return the object's size in bytes. Raises ObjectMissing."""
        with self._reading(key):
            return (await self._in_thread((self._root / key).stat)).st_size

    async def join(self, key: str, parts: Sequence[str], checksums: Sequence[Checksum] | None) -> Written:
        """Copy the parts into one object in a thread, hashing on the way. Raises ObjectMissing, ObjectDamaged."""
        staged = self._staging.create()
        try:
            for part, checksum in zip(parts, checksums or repeat(None), strict=checksums is not None):
                with self._reading(part):
                    copied = await self._in_thread(staged.append_file, self._root / part)
                if checksum is not None:
                    require_intact(part, checksum, copied)
            with writing(key):
                return await self._in_thread(staged.publish, key)
        finally:
            await self._in_thread(staged.discard)

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove files, and the folders that become empty by it."""
        with writing(keys[0] if keys else ""):
            await self._in_thread(self._delete, keys)

    async def list(self, prefix: str) -> AsyncGenerator[StoredObject]:
        """List the objects in a folder and below it; what is still being written is not listed."""
        with self._reading(prefix):
            async for chunk in obstore.list(self._names, prefix or None, chunk_size=LIST_CHUNK):
                for meta in chunk:
                    if not meta["path"].startswith(FOLDER):
                        yield StoredObject(key=meta["path"], size_bytes=meta["size"], modified_at=meta["last_modified"])

    async def close(self) -> None:
        """End the threads and give up the staging place. Idempotent."""
        await asyncio.to_thread(self._close)

    async def _in_thread(self, call: Callable[[Unpack[Arguments]], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    def _put(self, key: str, data: bytes) -> Written:
        staged = self._staging.create()
        try:
            staged.append((data,))
            return staged.publish(key)
        finally:
            staged.discard()

    def _fetch(self, key: str, start: int, length: int) -> Fetched:
        descriptor = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, length, start)
            return Fetched(data, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._root / key
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self._root:
                    break
                try:
                    folder.rmdir()
                except OSError:  # still in use, or already gone with the folders above it still there
                    break

    def _close(self) -> None:
        self._pool.shutdown()
        self._staging.close()

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            with reading(key):
                yield
        except ObjectMissing as error:
            # An unmounted disk must not read as "this object was deleted".
            if self._root.is_dir():
                raise
            raise unavailable(key, FileNotFoundError()) from error
