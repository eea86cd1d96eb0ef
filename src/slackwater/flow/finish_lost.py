"""What follows when committed results turn out to be lost or damaged as their batch is assembled.

Where the batch still may run, the lines of the chunks that lost something run again, and the batch goes on. Where it
may not (a cancel, an ended window, the same chunk lost over and over), an error line stands in for each lost result,
and what it cost is taken off. What is intact of a chunk stays as it is, and so do all other chunks.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore, Checksum
from slackwater.blobs.verifying import checksum_of, read_range, verify
from slackwater.db.queue.finishing import CommittedPart, FinishClaim, committed_parts
from slackwater.db.queue.leases import ChunkResult
from slackwater.db.queue.losses import LostChunk, lost_chunks, replace_result, rerun_lost
from slackwater.db.queue.results import ResultObject
from slackwater.db.session import Database
from slackwater.domain.errors import LeaseLost, ObjectMissing
from slackwater.domain.ids import LeaseToken
from slackwater.domain.line_errors import RESULT_LOST
from slackwater.domain.results import OpenAIDialect, line_id_prefix
from slackwater.domain.usage import NO_USAGE
from slackwater.flow.chunk_ids import read_custom_ids

_LOG: Final = structlog.get_logger("slackwater.finish")


class _ResultLine(msgspec.Struct, frozen=True):
    """What tells one result line from another."""

    id: str


_decode: Final = msgspec.json.Decoder(_ResultLine).decode


async def mend_lost_results(db: Database, store: BlobStore, claim: FinishClaim) -> bool:
    """Find what a claimed batch has lost, and have it run again or answered with errors.

    True where the batch runs again, and the claim is over; else it can be assembled. Idempotent; nothing happens where
    nothing is lost after all. Raises LeaseLost, Unavailable.
    """
    broken = {part.seq: part for part in await _broken_parts(store, await committed_parts(db, claim.batch_id))}
    seqs = sorted(broken)
    _LOG.error("results are lost", batch_id=claim.batch_id, chunks=len(seqs))
    if await rerun_lost(db, claim, seqs):
        # Those that were lost too often are found again, and answered, when the others have run.
        return True
    for lost in await lost_chunks(db, claim, seqs):
        result = await _stand_in(store, claim, lost, broken[lost.chunk.seq])
        if not await replace_result(db, claim, lost.chunk.seq, result):
            raise LeaseLost(f"{claim.batch_id} is assembled by another process")
    return False


async def _broken_parts(store: BlobStore, parts: Sequence[CommittedPart]) -> list[CommittedPart]:
    """Return the parts of which something is lost, each with what is left of it."""
    broken = []
    for part in parts:
        output = part.output if await _is_intact(store, part.output) else None
        errors = part.errors if await _is_intact(store, part.errors) else None
        if (output, errors) != (part.output, part.errors):
            broken.append(CommittedPart(seq=part.seq, output=output, errors=errors))
    return broken


async def _is_intact(store: BlobStore, stored: ResultObject | None) -> bool:
    """Tell whether an object holds what was written; None is nothing, and intact."""
    if stored is None:
        return True
    try:
        await verify(store, stored.key, Checksum(stored.size_bytes, stored.crc32))
    except ObjectMissing:
        return False
    return True


async def _stand_in(store: BlobStore, claim: FinishClaim, lost: LostChunk, left: CommittedPart) -> ChunkResult:
    """Write the error lines of a chunk anew: those that are left, and one for every line without a result."""
    chunk = lost.chunk
    kept = b"" if left.errors is None else await _read(store, left.errors)
    answered = _line_ids(kept)
    if left.output is not None:
        answered |= _line_ids(await _read(store, left.output))
    dialect = OpenAIDialect(id_prefix=line_id_prefix(claim.batch_id))
    lines = [
        dialect.failure(chunk.first_number + place, custom_id, RESULT_LOST)
        for place, custom_id in enumerate(await read_custom_ids(store, chunk))
    ]
    missing = [line for line in lines if _decode(line).id not in answered]
    # Named after this claim as an attempt is named after its lease: nobody else writes to this name.
    data = kept + b"".join(missing)
    errors = await _put(store, keys.part_errors_key(claim.batch_id, chunk.seq, LeaseToken(claim.claim_token)), data)
    stays = left.output is not None
    # Which of the lost error lines were cancelled or expired is lost with them.
    errors_stay = left.errors is not None
    return ChunkResult(
        succeeded=lost.succeeded if stays else 0,
        errored=(lost.errored if errors_stay else 0) + len(missing),
        cancelled=lost.cancelled if errors_stay else 0,
        expired=lost.expired if errors_stay else 0,
        usage=lost.usage if stays else NO_USAGE,
        output=left.output,
        errors=errors,
    )


async def _read(store: BlobStore, stored: ResultObject) -> bytes:
    """Read one intact result object."""
    return await read_range(store, stored.key, 0, Checksum(stored.size_bytes, stored.crc32))


def _line_ids(data: bytes) -> set[str]:
    return {_decode(line).id for line in data.split(b"\n") if line}


async def _put(store: BlobStore, key: str, data: bytes) -> ResultObject:
    written = await store.put(key, data, stage="finish.stand_in")
    return ResultObject(key=key, size_bytes=written.size_bytes, sha256=written.sha256, crc32=checksum_of(data).crc32)
