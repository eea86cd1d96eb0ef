"""Objects in a bucket of S3 or of a server that speaks its protocol, through obstore.

obstore does its own retries (``StoreSettings.max_retries``): of single requests, below everything here, so that a part
of a multipart upload is sent again and not the whole object. Correctness never rests on a conditional put, which many
servers ignore in silence: who may write what is decided in PostgreSQL.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from slackwater.blobs.backend import Fetched
from slackwater.blobs.failures import reading, writing
from slackwater.blobs.protocol import Checksum, StoredObject, Written
from slackwater.blobs.s3_writer import S3Writer
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.streams import parts_in_order

if TYPE_CHECKING:
    # Types of obstore's stubs only: they do not exist when the program runs.
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

PIECE_BYTES: Final = 2 << 20
# Joining reads this many parts at once, so that the way to the server and back is paid once for all of them.
PARTS_AHEAD: Final = 4
DELETE_CHUNK: Final = 1000
LIST_CHUNK: Final = 500
HASH_THREADS: Final = 2


class S3Bucket:
    """A Backend on one bucket, or on one folder of it."""

    piece_bytes: Final = PIECE_BYTES

    def __init__(self, bucket: str, prefix: str, settings: StoreSettings) -> None:
        self._store = _connect(bucket, prefix, settings)
        self._pool = ThreadPoolExecutor(HASH_THREADS, thread_name_prefix="blobs")

    async def put(self, key: str, data: bytes) -> Written:
        """Write a small object with one request."""
        sha256 = await asyncio.get_running_loop().run_in_executor(self._pool, _sha256, data)
        with writing(key):
            await obstore.put_async(self._store, key, data, use_multipart=False)
        return Written(size_bytes=len(data), sha256=sha256)

    def writer(self, key: str) -> S3Writer:
        """Make a writer; no I/O yet."""
        return S3Writer(self._store, key, self._pool)

    async def get(self, key: str) -> bytes:
        """Read a small object with one request. Raises ObjectMissing."""
        with reading(key):
            result = await obstore.get_async(self._store, key)
            return (await result.bytes_async()).to_bytes()

    async def fetch(self, key: str, start: int, length: int) -> Fetched:
        """Read a run of bytes with one request. Raises ObjectMissing."""
        with reading(key):
            if not length:
                return Fetched(b"", await self._size(key))
            try:
                result = await obstore.get_async(self._store, key, options={"range": (start, start + length)})
                return Fetched((await result.bytes_async()).to_bytes(), result.meta["size"])
            except BaseError:
                # A range that begins at the end or beyond is an error to S3 and an empty read to us.
                total_bytes = await self._size(key)
                if start < total_bytes:
                    raise
                return Fetched(b"", total_bytes)

    async def size(self, key: str) -> int:
        """Return the object's size in bytes. Raises ObjectMissing."""
        with reading(key):
            return await self._size(key)

    async def join(self, key: str, parts: Sequence[str], checksums: Sequence[Checksum] | None) -> Written:
        """Stream the parts through a writer. Raises ObjectMissing, ObjectDamaged.

        Not S3's own copying of parts: parts under 5 MiB cannot be copied so, and the hash has to see every byte.
        """
        writer = self.writer(key)
        pieces = parts_in_order(self.fetch, parts, piece_bytes=PIECE_BYTES, ahead=PARTS_AHEAD, checksums=checksums)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    await writer.write(piece)
            return await writer.finish()
        finally:
            await writer.discard()

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand with one request."""
        for first in range(0, len(keys), DELETE_CHUNK):
            chunk = list(keys[first : first + DELETE_CHUNK])
            with writing(chunk[0]):
                await obstore.delete_async(self._store, chunk)

    async def list(self, prefix: str) -> AsyncGenerator[StoredObject]:
        """List the objects in a folder and below it."""
        with reading(prefix):
            async for chunk in obstore.list(self._store, prefix or None, chunk_size=LIST_CHUNK):
                for meta in chunk:
                    yield StoredObject(key=meta["path"], size_bytes=meta["size"], modified_at=meta["last_modified"])

    async def close(self) -> None:
        """End the hashing threads; obstore closes its connections with itself. Idempotent."""
        await asyncio.to_thread(self._pool.shutdown)

    async def _size(self, key: str) -> int:
        return (await obstore.head_async(self._store, key))["size"]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _connect(bucket: str, prefix: str, settings: StoreSettings) -> S3Store:
    config: S3Config = {
        "region": settings.region,
        "virtual_hosted_style_request": settings.virtual_hosted_style,
    }
    if settings.endpoint is not None:
        config["endpoint"] = settings.endpoint
    if settings.request_checksum_calculation == "when_supported":
        config["checksum_algorithm"] = "SHA256"
    client: ClientConfig = {
        "allow_http": settings.allow_http,
        "timeout": timedelta(seconds=settings.request_timeout_seconds),
        "connect_timeout": timedelta(seconds=settings.connect_timeout_seconds),
    }
    retry: RetryConfig = {
        "max_retries": settings.max_retries,
        "retry_timeout": timedelta(seconds=settings.retry_seconds),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2.0},
    }
    return S3Store(
        bucket,
        prefix=prefix or None,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=_Credentials(settings) if settings.access_key_id else None,
    )


class _Credentials:
    """Our key and nothing else: given as plain configuration, a session token left in the environment would join it."""

    def __init__(self, settings: StoreSettings) -> None:
        self._credential: S3Credential = {
            "access_key_id": settings.access_key_id or "",
            "secret_access_key": settings.secret_access_key or "",
            "token": None,
            "expires_at": None,
        }

    def __call__(self) -> "S3Credential":
        return self._credential
