"""Restore: a backup back into an empty database and a store, so that the service goes on from its moment.

Objects first, each checked against its digest, then all rows in one transaction: whoever looks in between sees an
empty database. Run again after it broke off, it finds the objects there and goes on. Rows are loaded into the schema
they come from and migrated after that. What was under way in the backup is under way no more: leases and claims
are taken from their holders, who may still live, and the work waits for whoever comes.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.store import open_store
from slackwater.db.migrate import known_revisions, migrate, rebuild, schema_revision
from slackwater.db.queue.restoring import end_holdings
from slackwater.db.snapshot import TableShape, filled_tables, open_load, other_sessions, settle_loaded
from slackwater.db.sweep_hold import sweeping_held
from slackwater.domain.errors import SetupError
from slackwater.flow.backup_copy import CopyObserver, copy_object, each, read_object
from slackwater.flow.backup_folder import BackupFolder, Manifest, ObjectEntry

_HOLD_WAIT_SECONDS: Final = 60.0
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Restore:
    """What a restore needs. ``replace`` allows it to drop the rows that the database holds."""

    database_url: str
    store: BlobStore
    observer: CopyObserver
    replace: bool = False

    async def run(self, path: Path) -> Manifest:
        """Restore the backup in a folder. Memory: some pieces of objects.

        Raises SetupError, with the database as it was, where the backup is damaged or of a newer version, the database
        holds rows that may not be dropped, or processes of the service still use it.
        """
        folder = BackupFolder(path=path)
        manifest = folder.read_manifest()
        if manifest.revision not in known_revisions():
            raise SetupError(f"the backup is of a newer version ({manifest.slackwater}); restore it with that version")
        self.observer.begun("digests of the rows")
        await asyncio.to_thread(folder.verify_lists, manifest)
        await self._refuse_unless_free()
        async with sweeping_held(self.database_url, wait_seconds=_HOLD_WAIT_SECONDS):
            await self._load_objects(folder, manifest)
            await self._load_rows(folder, manifest)
        return manifest

    async def _refuse_unless_free(self) -> None:
        """Insist that nobody works on the database, and that nothing in it would be lost unasked."""
        revision = await asyncio.to_thread(schema_revision, self.database_url)
        if revision is not None and revision not in known_revisions():
            raise SetupError("the database belongs to a newer version; restore with that version, or into another one")
        if sessions := await other_sessions(self.database_url):
            raise SetupError(f"{sessions} connections of the service's processes use the database; end them first")
        filled = await filled_tables(self.database_url)
        if filled and not self.replace:
            raise SetupError(f"the database holds rows in {', '.join(filled)}; --force drops them")

    async def _load_objects(self, folder: BackupFolder, manifest: Manifest) -> None:
        """Copy every object that the store does not have already."""
        self.observer.begun("objects", count=manifest.objects.count, size_bytes=manifest.objects.size_bytes)
        source = open_store(str(folder.objects))

        async def load(entry: ObjectEntry) -> None:
            there = await read_object(self.store, entry.key)
            if there is None or there.sha256 != entry.sha256:
                copied = await copy_object(source, self.store, entry.key, stage="restore.object", sha256=entry.sha256)
                if copied is None or copied.sha256 != entry.sha256:
                    why = "is missing" if copied is None else "is not what was written"
                    raise SetupError(f"the backup is damaged: the object {entry.key} {why}")
            self.observer.moved(count=1, size_bytes=entry.size_bytes)

        try:
            await each(folder.entries(), load)
        finally:
            await source.close()

    async def _load_rows(self, folder: BackupFolder, manifest: Manifest) -> None:
        """Fill a new schema of the backup's revision, then bring it to this version's."""
        await asyncio.to_thread(rebuild, self.database_url, revision=manifest.revision)
        async with open_load(self.database_url) as transaction:
            for table in manifest.tables:
                self.observer.begun(f"rows of {table.name}")
                shape = TableShape(name=table.name, columns=table.columns)
                rows = await transaction.fill(shape, _pieces(folder.table(table.name)))
                if rows != table.rows:
                    raise SetupError(f"the backup is damaged: {table.name} has {rows} rows, not {table.rows}")
                self.observer.moved(count=rows, size_bytes=table.size_bytes)
            await end_holdings(transaction)
        await asyncio.to_thread(migrate, self.database_url)
        await settle_loaded(self.database_url)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
