"""What an object store is to the rest of the service: named, immutable runs of bytes.

Implementations: a local folder and S3, both through obstore (``store``). An object exists whole or not at all, and
once a write call returns it survives a power cut (the local store fsyncs the file and its folder).
Every write names the *stage* it belongs to (``"commit.part"``): writes pass one seam, so faults and crash points can
be enumerated. Errors: ObjectMissing for a key that is not there, StoreUnavailable for everything else, after a few
retries of what may pass. One contract suite, ``tests/contract/test_blob_contract.py``, holds for all of them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import NamedTuple, Protocol, Self


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredObject:
    """One object as a listing shows it."""

    key: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a finished write left behind."""

    size_bytes: int
    sha256: str
    """Hex digest of all bytes."""


class Checksum(NamedTuple):
    """What a run of stored bytes must be."""

    size_bytes: int
    crc32: int | None
    """As ``zlib.crc32`` computes it; None where none was kept, and then only the size tells."""


class BlobWriter(Protocol):
    """An object being written in pieces, in flat memory. Leaving the block without ``finish`` leaves nothing behind."""

    async def write(self, data: bytes | memoryview) -> None:
        """Append bytes; waits when the store is slower than the caller."""
        ...

    async def finish(self) -> Written:
        """Make the object visible and durable."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BlobStore(Protocol):
    """The store itself. Safe to use from many tasks of one event loop."""

    async def put(self, key: str, data: bytes, *, stage: str) -> Written:
        """Write one small object whole (up to some tens of MiB)."""
        ...

    def writer(self, key: str, *, stage: str) -> BlobWriter:
        """Start writing an object of any size."""
        ...

    async def get(self, key: str) -> bytes:
        """Read a small object whole. Raises ObjectMissing."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from ``start``; fewer only at the object's end. Raises ObjectMissing."""
        ...

    async def size(self, key: str) -> int:
        """Return the object's size in bytes. Raises ObjectMissing."""
        ...

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Stream bytes in pieces of about 1 MiB, one read ahead. A failed read raises: it never ends early."""
        ...

    async def join(
        self, key: str, parts: Sequence[str], *, stage: str, checksums: Sequence[Checksum] | None = None
    ) -> Written:
        """Write the parts' bytes one after another as one object, streamed, in flat memory.

        ``checksums`` has one for each part. Raises ObjectMissing, and ObjectDamaged for a part that is not what its
        checksum says: nothing is written then.
        """
        ...

    async def delete(self, keys: Sequence[str], *, stage: str) -> None:
        """Remove objects; a key that is not there is fine."""
        ...

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """List objects below a prefix, in no particular order."""
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...
