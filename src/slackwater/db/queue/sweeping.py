"""What is left behind and may go: rows of ended batches, files past their time, forgotten workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slackwater.db.queue.statements import SQL
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId, FileId


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedBatch:
    """An ended batch whose working objects and chunk rows may go."""

    batch_id: BatchId
    plan_key: str | None
    index_key: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeableFile:
    """A hidden file whose bytes nobody needs."""

    file_id: FileId
    object_key: str


class SpentSegment(NamedTuple):
    """A checkpoint of a batch that has ended."""

    batch_id: BatchId
    seq: int
    segment_no: int
    object_key: str


async def sweepable_batches(db: Database, *, keep_seconds: float, limit: int = 20) -> list[EndedBatch]:
    """Return batches that ended more than ``keep_seconds`` ago and were not swept yet."""
    rows = await db.fetch("sweep.batches", SQL["sweepable_batches"], {"keep_seconds": keep_seconds, "limit": limit})
    return [EndedBatch(batch_id=row.id, plan_key=row.plan_key, index_key=row.index_key) for row in rows]


async def referenced_keys(db: Database, keys: Sequence[str]) -> frozenset[str]:
    """Return those of the object keys that some file with bytes points at: they must stay."""
    rows = await db.fetch("sweep.referenced", SQL["referenced_keys"], {"keys": list(keys)})
    return frozenset(row.object_key for row in rows)


async def forget_repeats(db: Database, *, limit: int = 5000) -> int:
    """Forget requests that can no longer be repeated; returns how many."""
    return len(await db.fetch("sweep.repeats", SQL["forget_repeats"], {"limit": limit}))


async def needed_objects(db: Database, owners: Mapping[str, str]) -> frozenset[str]:
    """Return those of the objects that somebody may still need; ``owners`` names the file or batch of each key."""
    params = {"keys": list(owners), "owners": list(owners.values())}
    return frozenset(row.key for row in await db.fetch("sweep.needed", SQL["needed_objects"], params))


async def sweep_chunks(db: Database, batch_id: BatchId) -> None:
    """Delete the chunk rows of an ended batch and remember that it is swept."""
    await db.fetch("sweep.chunks", SQL["sweep_chunks"], {"batch_id": batch_id})


async def expire_files(db: Database, *, limit: int = 500) -> int:
    """Hide the files that are past their time; returns how many."""
    return len(await db.fetch("sweep.expire_files", SQL["expire_files"], {"limit": limit}))


async def purgeable_files(db: Database, *, limit: int = 200) -> list[PurgeableFile]:
    """Return hidden files whose bytes no live batch reads."""
    rows = await db.fetch("sweep.purgeable", SQL["purgeable_files"], {"limit": limit})
    return [PurgeableFile(file_id=row.id, object_key=row.object_key) for row in rows]


async def mark_purged(db: Database, file_ids: Sequence[FileId]) -> None:
    """Remember that the bytes of these files are gone."""
    await db.fetch("sweep.purged", SQL["mark_purged"], {"file_ids": list(file_ids)})


async def spent_segments(db: Database, *, limit: int = 1000) -> list[SpentSegment]:
    """Return checkpoints that nobody will take over any more: those of batches that have ended."""
    rows = await db.fetch("sweep.spent", SQL["spent_segments"], {"limit": limit})
    return [SpentSegment(row.batch_id, row.seq, row.segment_no, row.object_key) for row in rows]


async def forget_segments(db: Database, segments: Sequence[SpentSegment]) -> None:
    """Delete the rows of checkpoints whose objects are gone."""
    params = {
        "batch_ids": [segment.batch_id for segment in segments],
        "seqs": [segment.seq for segment in segments],
        "segment_nos": [segment.segment_no for segment in segments],
    }
    await db.fetch("sweep.segments", SQL["forget_segments"], params)


async def forget_workers(db: Database, *, keep_seconds: float) -> int:
    """Forget the workers that fell silent so long ago; returns how many."""
    return len(await db.fetch("sweep.workers", SQL["forget_workers"], {"keep_seconds": keep_seconds}))
