"""Sweep: what may go, goes. Every pass is bounded and idempotent, and touches nothing that a live process writes."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.sweeping import (
    EndedBatch,
    expire_files,
    forget_repeats,
    forget_segments,
    forget_workers,
    mark_purged,
    needed_objects,
    purgeable_files,
    referenced_keys,
    spent_segments,
    sweep_chunks,
    sweepable_batches,
)
from slackwater.db.session import Database

_LOG: Final = structlog.get_logger("slackwater.sweep")
_GROUP: Final = 1000
_MOST_ORPHANS: Final = 20_000


async def _nothing_left(_untouched_since: datetime) -> int:
    return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweeper:
    """What sweeping needs. ``keep_seconds`` is how long an ended batch keeps its chunk rows and parts."""

    db: Database
    store: BlobStore
    keep_seconds: float
    now: Callable[[], datetime]
    """The time, aware; only compared with the age of objects, in days."""
    leftovers: Callable[[datetime], Awaitable[int]] = _nothing_left
    """Removes what dead writers left half made in the store and nobody touched since then; returns how many."""
    orphan_age: timedelta = timedelta(days=1)
    """An object that no row names may go once it is so old: its writer has made the row by then, or never will."""

    async def sweep_files_once(self) -> bool:
        """Hide expired files, then remove the bytes of hidden ones; returns whether anything went."""
        expired = await expire_files(self.db)
        files = await purgeable_files(self.db)
        if files:
            # Bytes first: a crash in between leaves a hidden row, and the next pass removes nothing once more.
            await self.store.delete([file.object_key for file in files], stage="sweep.file")
            await mark_purged(self.db, [file.file_id for file in files])
            _LOG.info("files purged", files=len(files))
        return bool(expired or files)

    async def sweep_batches_once(self) -> bool:
        """Remove the working objects and chunk rows of batches that ended long enough ago."""
        ended = await sweepable_batches(self.db, keep_seconds=self.keep_seconds)
        for batch in ended:
            await self._sweep(batch)
        return bool(ended)

    async def forget_workers_once(self) -> bool:
        """Forget workers that fell silent long ago; returns whether there were any."""
        return await forget_workers(self.db, keep_seconds=self.keep_seconds) > 0

    async def forget_repeats_once(self) -> bool:
        """Forget requests that can no longer be repeated; returns whether there were any."""
        return await forget_repeats(self.db) > 0

    async def sweep_orphans_once(self) -> bool:
        """Remove objects that no row names: uploads, plans, parts and results whose writer died before its row.

        One look at every object of the store, ended early where that many go; returns whether any went.
        """
        removed = 0
        for folder in keys.FOLDERS:
            owners: dict[str, str] = {}
            async for stored in self.store.list(folder):
                owner = keys.owner_of(stored.key)
                if owner is not None and stored.modified_at < self.now() - self.orphan_age:
                    owners[stored.key] = owner
                if len(owners) == _GROUP:
                    removed += await self._remove_orphans(owners)
                    owners = {}
                if removed >= _MOST_ORPHANS:
                    break
            removed += await self._remove_orphans(owners)
        if removed:
            _LOG.info("orphan objects removed", objects=removed)
        return removed > 0

    async def sweep_leftovers_once(self) -> bool:
        """Remove half-made uploads and staged files whose writers are gone; returns whether there were any."""
        removed = await self.leftovers(self.now() - self.orphan_age)
        if removed:
            _LOG.info("half-made objects removed", objects=removed)
        return removed > 0

    async def sweep_segments_once(self) -> bool:
        """Remove the checkpoints of ended batches; returns whether there were any.

        Until then they are worth keeping: where a result is lost, its lines need not all run again.
        """
        spent = await spent_segments(self.db)
        if spent:
            await self.store.delete([segment.object_key for segment in spent], stage="sweep.segment")
            await forget_segments(self.db, spent)
        return bool(spent)

    async def _remove_orphans(self, owners: dict[str, str]) -> int:
        """Remove those of the objects that nobody needs; returns how many."""
        needed = await needed_objects(self.db, owners) if owners else frozenset()
        orphans = [key for key in owners if key not in needed]
        if orphans:
            await self.store.delete(orphans, stage="sweep.orphan")
        return len(orphans)

    async def _sweep(self, batch: EndedBatch) -> None:
        """Remove one batch's plan and parts, but for objects that became files."""
        prefixes = (keys.plans_prefix(batch.batch_id), keys.parts_prefix(batch.batch_id))
        found = [stored.key for prefix in prefixes async for stored in self.store.list(prefix)]
        for group in _groups(found, _GROUP):
            kept = await referenced_keys(self.db, group)
            await self.store.delete([key for key in group if key not in kept], stage="sweep.batch")
        await sweep_chunks(self.db, batch.batch_id)


def _groups(items: list[str], size: int) -> Iterable[list[str]]:
    """Cut a list into pieces of at most ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))
