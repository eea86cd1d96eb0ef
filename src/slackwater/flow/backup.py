"""Backup: the database as it was at one moment, and every object that it may point at.

The rows come first, out of one snapshot, and the objects after them. Objects never change, and rows point at nothing
that is not durable yet: whatever the snapshot points at is there, as long as nobody deletes it. So deleting is held off
from before the snapshot to the end (``db/sweep_hold``), while everything else runs on. Which objects are needed is
what the sweeper asks, too; those made meanwhile come along without a row, and harm nothing.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Final

import msgspec

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore, StoredObject
from slackwater.blobs.store import open_store
from slackwater.db.migrate import head_revision, schema_revision
from slackwater.db.queue.sweeping import needed_objects
from slackwater.db.session import Database
from slackwater.db.snapshot import Snapshot, TableShape, open_snapshot, table_shapes
from slackwater.db.sweep_hold import sweeping_held
from slackwater.domain.errors import SetupError
from slackwater.flow.backup_copy import CopyObserver, copy_object, each, read_object
from slackwater.flow.backup_folder import (
    FORMAT,
    BackupFolder,
    Manifest,
    ObjectEntry,
    ObjectsEntry,
    TableEntry,
    digest_of,
)

_GROUP: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Backup:
    """What a backup needs."""

    database_url: str
    db: Database
    store: BlobStore
    version: str
    observer: CopyObserver
    hold_wait_seconds: float = 600.0
    """How long a sweep under way may take to end."""

    async def make(self, path: Path) -> Manifest:
        """Make a backup in a folder that is empty, not there, or was begun before: then its objects are kept.

        Memory: some pieces of objects. Raises SetupError for another folder, for a schema that is not this version's,
        and where the hold on deletions was lost.
        """
        if await asyncio.to_thread(schema_revision, self.database_url) != head_revision():
            raise SetupError("the database is not at this version's schema; back it up with the version that it is of")
        folder = BackupFolder(path=path)
        folder.begin()
        async with sweeping_held(self.database_url, wait_seconds=self.hold_wait_seconds) as hold:
            async with open_snapshot(self.database_url) as snapshot:
                tables = [await self._save_rows(folder, snapshot, table) for table in table_shapes()]
            objects = await self._save_objects(folder, await self._list_objects(folder))
            await hold.check()
        manifest = Manifest(
            format=FORMAT,
            slackwater=self.version,
            revision=head_revision(),
            taken_at=snapshot.taken_at.astimezone(UTC).isoformat(timespec="seconds"),
            tables=tuple(tables),
            objects=objects,
        )
        folder.complete(manifest)
        return manifest

    async def _save_rows(self, folder: BackupFolder, snapshot: Snapshot, table: TableShape) -> TableEntry:
        """Write one table's rows to its file."""
        self.observer.begun(f"rows of {table.name}")
        digest, rows, size_bytes = hashlib.sha256(), 0, 0
        with folder.table(table.name).open("wb", buffering=1 << 20) as file:
            async for line in snapshot.rows(table):
                file.write(line)
                digest.update(line)
                size_bytes += len(line)
                rows += 1
        self.observer.moved(count=rows, size_bytes=size_bytes)
        return TableEntry(
            name=table.name, columns=table.columns, rows=rows, size_bytes=size_bytes, sha256=digest.hexdigest()
        )

    async def _list_objects(self, folder: BackupFolder) -> "_Totals":
        """Write down which objects to copy: the whole list may be longer than memory."""
        self.observer.begun("list of objects")
        wanted = _Totals()
        with folder.wanted.open("wb", buffering=1 << 20) as file:
            async with aclosing(self._needed()) as found:
                async for stored in found:
                    file.write(stored.key.encode() + b"\n")
                    wanted.add(stored.size_bytes)
                    self.observer.moved(count=1, size_bytes=0)
        return wanted

    async def _needed(self) -> AsyncGenerator[StoredObject]:
        """Yield the store's objects that a row may point at."""
        for folder in keys.FOLDERS:
            group: dict[str, StoredObject] = {}
            async for stored in self.store.list(folder):
                group[stored.key] = stored
                if len(group) == _GROUP:
                    for needed in await self._needed_of(group):
                        yield needed
                    group = {}
            for needed in await self._needed_of(group):
                yield needed

    async def _needed_of(self, group: dict[str, StoredObject]) -> list[StoredObject]:
        owners = {key: owner for key in group if (owner := keys.owner_of(key)) is not None}
        needed = await needed_objects(self.db, owners) if owners else frozenset()
        return [stored for key, stored in group.items() if key in needed]

    async def _save_objects(self, folder: BackupFolder, wanted: "_Totals") -> ObjectsEntry:
        """Copy the listed objects and write their list."""
        self.observer.begun("objects", count=wanted.count, size_bytes=wanted.size_bytes)
        target = open_store(str(folder.objects))
        saved = _Totals()
        try:
            with (
                folder.wanted.open("rb") as asked,
                folder.list.open("wb", buffering=1 << 20) as file,
            ):

                async def save(line: bytes) -> None:
                    key = line.decode().rstrip("\n")
                    # An object that an earlier run copied is whole: it appeared whole or not at all.
                    copied = await read_object(target, key) or await copy_object(
                        self.store, target, key, stage="backup.object", sha256=None
                    )
                    if copied is None:
                        return  # an upload or a plan that was given up meanwhile: no row ever pointed at it
                    entry = ObjectEntry(key=key, size_bytes=copied.size_bytes, sha256=copied.sha256)
                    file.write(msgspec.json.encode(entry) + b"\n")
                    saved.add(copied.size_bytes)
                    self.observer.moved(count=1, size_bytes=copied.size_bytes)

                await each(asked, save)
        finally:
            await target.close()
        return ObjectsEntry(count=saved.count, size_bytes=saved.size_bytes, sha256=digest_of(folder.list))


@dataclass(kw_only=True, slots=True)
class _Totals:
    """How many objects, and how large they are together."""

    count: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Count one more."""
        self.count += 1
        self.size_bytes += size_bytes
