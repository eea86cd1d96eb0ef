"""The object store: one class over every kind of storage, and the one way to open it."""

import functools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slackwater.blobs.backend import Backend, Fetched
from slackwater.blobs.keys import checked
from slackwater.blobs.local import LocalFolder
from slackwater.blobs.protocol import BlobStore, Checksum, StoredObject, Written
from slackwater.blobs.s3 import S3Bucket
from slackwater.blobs.seam import BlobObserver, Seam
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.streams import pieces_of
from slackwater.blobs.watch import Watch
from slackwater.blobs.writer import SeamedWriter
from slackwater.domain.errors import SetupError


def open_store(
    url: str,
    *,
    settings: StoreSettings | None = None,
    seam: Seam | None = None,
    observer: BlobObserver | None = None,
) -> BlobStore:
    """Open the store at ``file:///folder``, a plain path (made if need be), or ``s3://bucket/prefix``.

    No request is sent yet: ``bucket.prepare_bucket`` makes a bucket that is not there. Raises SetupError for a URL of
    another kind, StoreUnavailable for a folder that cannot be made or written.
    """
    kind, place, prefix = parse_url(url)
    settings = settings or StoreSettings()
    backend: Backend = LocalFolder(Path(place)) if kind == "file" else S3Bucket(place, prefix, settings)
    return ObjectStore(backend, seam=seam, observer=observer)


def parse_url(url: str) -> tuple[str, str, str]:
    """Split a store's URL into ``("file", folder, "")`` or ``("s3", bucket, prefix)``. Raises SetupError."""
    parts = urlsplit(url)
    match parts.scheme:
        case "s3" if parts.netloc and "@" not in parts.netloc:
            return "s3", parts.netloc, parts.path.strip("/")
        case "file" if parts.netloc in {"", "localhost"} and parts.path.startswith("/"):
            return "file", unquote(parts.path), ""
        case "" if url:
            return "file", url, ""
        case _:
            raise SetupError("The object store's URL must be file:///folder, a folder, or s3://bucket/prefix.")


class ObjectStore:
    """A BlobStore. Every write and delete of the service passes its seam; every operation is told to its observer."""

    def __init__(
        self,
        backend: Backend,
        *,
        seam: Seam | None = None,
        observer: BlobObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._watch = Watch(seam=seam, observer=observer, clock=clock)

    async def put(self, key: str, data: bytes, *, stage: str) -> Written:
        """Write one small object whole. Raises StoreUnavailable."""
        async with self._watch.change("put", stage, (checked(key),)) as moved:
            written = await self._backend.put(key, data)
            moved.size_bytes = written.size_bytes
        return written

    def writer(self, key: str, *, stage: str) -> SeamedWriter:
        """Start writing an object of any size; nothing happens before the block is entered."""
        return SeamedWriter(self._backend.writer(checked(key)), self._watch, stage=stage, key=key)

    async def get(self, key: str) -> bytes:
        """Read a small object whole. Raises ObjectMissing, StoreUnavailable."""
        with self._watch.timed("get") as moved:
            data = await self._backend.get(checked(key))
            moved.size_bytes = len(data)
        return data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from ``start``; fewer only at the object's end. Raises ObjectMissing."""
        return (await self._fetch("get_range", key, start, length)).data

    async def size(self, key: str) -> int:
        """Return the object's size in bytes. Raises ObjectMissing, StoreUnavailable."""
        with self._watch.timed("size"):
            return await self._backend.size(checked(key))

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncGenerator[bytes]:
        """Stream bytes piece by piece, one read ahead. A failed read raises: it never ends early."""
        fetch = functools.partial(self._fetch, "read")
        return pieces_of(fetch, key, piece_bytes=self._backend.piece_bytes, start=start, length=length)

    async def join(
        self, key: str, parts: Sequence[str], *, stage: str, checksums: Sequence[Checksum] | None = None
    ) -> Written:
        """Write the parts one after another as one object. Raises ObjectMissing, ObjectDamaged: nothing is written."""
        async with self._watch.change("join", stage, (checked(key),)) as moved:
            written = await self._backend.join(key, [checked(part) for part in parts], checksums)
            moved.size_bytes = written.size_bytes
        return written

    async def delete(self, keys: Sequence[str], *, stage: str) -> None:
        """Remove objects; a key that is not there is fine. Raises StoreUnavailable when some may be left."""
        async with self._watch.change("delete", stage, [checked(key) for key in keys]):
            await self._backend.delete(keys)

    async def list(self, prefix: str) -> AsyncGenerator[StoredObject]:
        """List the objects in a folder (``parts/batch_…``) and below it; an empty prefix lists everything."""
        with self._watch.timed("list"):
            async with aclosing(self._backend.list(prefix.rstrip("/"))) as objects:
                async for stored in objects:
                    yield stored

    async def close(self) -> None:
        """Release threads and connections. Idempotent."""
        await self._backend.close()

    async def _fetch(self, op: str, key: str, start: int, length: int) -> Fetched:
        if start < 0 or length < 0:
            raise ValueError("a range begins at 0 or later and is not negative")
        with self._watch.timed(op) as moved:
            fetched = await self._backend.fetch(checked(key), start, length)
            moved.size_bytes = len(fetched.data)
        return fetched
