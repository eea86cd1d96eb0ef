"""What a kind of storage must be able to do; ``store`` builds the whole BlobStore protocol on it.

Backends raise the project's own errors (``failures``). They know neither the seam nor the observer.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from slackwater.blobs.protocol import Checksum, StoredObject, Written


class Fetched(NamedTuple):
    """A run of an object's bytes, and how long the whole object is."""

    data: bytes
    total_bytes: int


class BackendWriter(Protocol):
    """One object being written. ``open`` first; then either ``finish`` or ``discard`` last."""

    async def open(self) -> None:
        """Claim what writing needs. Nothing can be seen in the store yet."""
        ...

    async def write(self, data: bytes | memoryview) -> None:
        """Append bytes; the memory is the caller's again when this returns."""
        ...

    async def finish(self) -> Written:
        """Make the object visible and durable."""
        ...

    async def discard(self) -> None:
        """Leave nothing behind, also after a ``write`` or ``finish`` that failed or was cancelled half way."""
        ...


class Backend(Protocol):
    """One kind of storage."""

    @property
    def piece_bytes(self) -> int:
        """How much one ``fetch`` should ask for when a whole object is streamed."""
        ...

    async def put(self, key: str, data: bytes) -> Written:
        """Write a small object whole, durable on return."""
        ...

    def writer(self, key: str) -> BackendWriter:
        """Make a writer; no I/O yet."""
        ...

    async def get(self, key: str) -> bytes:
        """Read a small object whole. Raises ObjectMissing."""
        ...

    async def fetch(self, key: str, start: int, length: int) -> Fetched:
        """Read ``length`` bytes from ``start``, fewer (or none) only at the object's end. Raises ObjectMissing."""
        ...

    async def size(self, key: str) -> int:
        """Return the object's size in bytes. Raises ObjectMissing."""
        ...

    async def join(self, key: str, parts: Sequence[str], checksums: Sequence[Checksum] | None) -> Written:
        """Write the parts one after another as one object, durable on return. Raises ObjectMissing, ObjectDamaged."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; a key that is not there is fine."""
        ...

    def list(self, prefix: str) -> AsyncGenerator[StoredObject]:
        """List the objects in a folder and below it; an empty prefix lists everything."""
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...
