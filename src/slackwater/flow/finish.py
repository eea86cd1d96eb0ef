"""Finish: assemble the results of a batch that runs no more, and end it.

The committed parts are joined in commit order, never parsed; a single part is adopted as it is. Chunks that nobody
will run any more (a cancel, an ended window) become error lines of their own. The files and the final state appear in
one transaction; whoever loses the claim before it leaves orphan objects to the sweep, and nothing else.

Every part is held against its checksum while it is joined; one that is lost or damaged is ``finish_lost``'s matter.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec
import structlog

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore, BlobWriter, Checksum, Written
from slackwater.blobs.verifying import read_intact, verify
from slackwater.db.queue.finishing import (
    FinishClaim,
    ResultFile,
    UnrunChunk,
    claim_finishing,
    committed_parts,
    expire_batches,
    finish_batch,
    revoke_leases,
    unrun_chunks,
)
from slackwater.db.queue.planning import fail_finishing, renew_claim
from slackwater.db.queue.results import ResultObject
from slackwater.db.session import Database
from slackwater.domain.errors import LeaseLost, ObjectMissing, StoreUnavailable
from slackwater.domain.ids import BatchId, file_id
from slackwater.domain.line_errors import BATCH_CANCELLED, BATCH_EXPIRED
from slackwater.domain.results import Dialect, OpenAIDialect, line_id_prefix
from slackwater.flow.chunk_ids import read_custom_ids
from slackwater.flow.claims import MOST_CLAIMS, ClaimReturns
from slackwater.flow.finish_close import close_begun_chunks
from slackwater.flow.finish_lost import mend_lost_results
from slackwater.metrics import BatchEnd

_LOG: Final = structlog.get_logger("slackwater.finish")
_CLAIM_SECONDS: Final = 60.0
_RENEW_SECONDS: Final = 15.0


class FinishError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch could not be assembled, as its ``errors`` show it."""

    code: str
    message: str
    param: None = None
    line: None = None


_GIVEN_UP: Final = FinishError(
    code="finishing_failed",
    message=f"The results of this batch could not be put together in {MOST_CLAIMS} tries. If a new batch ends so, too,"
    " tell whoever runs this service.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finisher:
    """What finishing needs. ``stop_grace_seconds`` is how long workers may take to close a stopped batch."""

    db: Database
    store: BlobStore
    new_uuid: Callable[[], UUID]
    stop_grace_seconds: float
    default_expiry_seconds: float
    ended: Callable[[BatchEnd], None]
    """Told the state in which each batch ended."""
    revoked: Callable[[int], None]
    """Told how many leases outlasted the grace and were taken away."""
    returns: ClaimReturns

    async def expire_once(self) -> bool:
        """Stop the batches whose window is over; returns whether there were any."""
        return await expire_batches(self.db) > 0

    async def finish_once(self) -> bool:
        """Assemble and end one batch, or have what it lost run again; returns whether there was one."""
        await self.returns.settle()
        claim = await claim_finishing(self.db, grace_seconds=self.stop_grace_seconds, claim_seconds=_CLAIM_SECONDS)
        if claim is None:
            return False
        async with (
            self.returns.if_broken_off(claim.batch_id, claim.claim_token),
            _kept(self.db, claim.batch_id, claim.claim_token),
        ):
            if claim.claims > MOST_CLAIMS:
                await self._give_up(claim, _GIVEN_UP, cause="every try broke off")
                return True
            try:
                await self._finish(claim)
            except ObjectMissing as error:
                _LOG.error("results are lost", batch_id=claim.batch_id, cause=str(error))
                await self._mend(claim)
        return True

    async def _mend(self, claim: FinishClaim) -> None:
        """Have what is lost run again, or end the batch without it."""
        if await mend_lost_results(self.db, self.store, claim):
            return
        try:
            await self._finish(claim)
        except ObjectMissing as error:
            raise StoreUnavailable("The object store lost results a moment after they were found whole.") from error

    async def _finish(self, claim: FinishClaim) -> None:
        """Write the result files and end the batch."""
        unrun: Sequence[UnrunChunk] = ()
        if claim.ending != "completed":
            # A batch that is complete has no leases and no chunks that did not run: that is what made it complete.
            self.revoked(await revoke_leases(self.db, claim.batch_id))
            await close_begun_chunks(self.db, self.store, claim)
            unrun = await unrun_chunks(self.db, claim.batch_id)
        parts = await committed_parts(self.db, claim.batch_id)
        outputs = [part.output for part in parts if part.output is not None]
        errors = [part.errors for part in parts if part.errors is not None]
        output = await self._assemble(outputs, keys.output_key(claim.batch_id, claim.claim_token))
        error = await self._assemble_errors(claim, errors, unrun)
        ended = await finish_batch(
            self.db,
            claim,
            output=self._file(claim, output, "output"),
            errors=self._file(claim, error, "error"),
            unrun=sum(chunk.n_requests for chunk in unrun),
        )
        if not ended:
            raise LeaseLost(f"{claim.batch_id} was assembled by another process")
        self.ended(claim.ending)
        _LOG.info("batch ended", batch_id=claim.batch_id, ending=claim.ending, lines=claim.total)

    async def _assemble(self, parts: Sequence[ResultObject], key: str) -> ResultObject | None:
        """Join parts into one object; one part alone is adopted, none gives none."""
        if not parts:
            return None
        if len(parts) == 1:
            await verify(self.store, parts[0].key, _checksum(parts[0]))
            return parts[0]
        written = await self.store.join(
            key, [part.key for part in parts], stage="finish.join", checksums=[_checksum(part) for part in parts]
        )
        return ResultObject(key=key, size_bytes=written.size_bytes, sha256=written.sha256)

    async def _assemble_errors(
        self, claim: FinishClaim, parts: Sequence[ResultObject], unrun: Sequence[UnrunChunk]
    ) -> ResultObject | None:
        """Join the error parts; behind them stands a line for every request that never ran."""
        key = keys.errors_key(claim.batch_id, claim.claim_token)
        if not unrun:
            return await self._assemble(parts, key)
        async with self.store.writer(key, stage="finish.errors") as writer:
            for part in parts:
                async for piece in read_intact(self.store, part.key, _checksum(part)):
                    await writer.write(piece)
            written = await self._write_unrun(claim, writer, unrun)
        return ResultObject(key=key, size_bytes=written.size_bytes, sha256=written.sha256)

    async def _write_unrun(self, claim: FinishClaim, writer: BlobWriter, unrun: Sequence[UnrunChunk]) -> Written:
        """Write the error lines of the chunks that nobody ran; one chunk is in memory at a time."""
        error = BATCH_CANCELLED if claim.ending == "cancelled" else BATCH_EXPIRED
        dialect: Dialect = OpenAIDialect(id_prefix=line_id_prefix(claim.batch_id))
        for chunk in unrun:
            ids = await read_custom_ids(self.store, chunk)
            lines = (dialect.failure(chunk.first_number + place, ids[place], error) for place in range(len(ids)))
            await writer.write(b"".join(lines))
        return await writer.finish()

    def _file(self, claim: FinishClaim, part: ResultObject | None, kind: str) -> ResultFile | None:
        """Describe a result file: named after the batch, kept as long as the customer asked. None without lines."""
        if part is None:
            return None
        return ResultFile(
            file_id=file_id(self.new_uuid()),
            filename=f"{claim.batch_id}_{kind}.jsonl",
            size_bytes=part.size_bytes,
            sha256=part.sha256,
            object_key=part.key,
            expires_seconds=claim.output_expires_seconds or self.default_expiry_seconds,
        )

    async def _give_up(self, claim: FinishClaim, why: FinishError, *, cause: str) -> None:
        """End a batch that can never be whole: it says why."""
        _LOG.error("batch cannot be assembled", batch_id=claim.batch_id, cause=cause)
        if await fail_finishing(self.db, claim.batch_id, claim.claim_token, [why]):
            self.ended("failed")


def _checksum(part: ResultObject) -> Checksum:
    return Checksum(part.size_bytes, part.crc32)


@contextlib.asynccontextmanager
async def _kept(db: Database, batch_id: BatchId, claim_token: UUID) -> AsyncIterator[None]:
    """Renew a claim while the block runs. A lost claim is noticed by the final statement, which it refuses."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            if not await renew_claim(db, batch_id, claim_token, _CLAIM_SECONDS):
                _LOG.warning("claim lost while assembling", batch_id=batch_id)
                return

    renewer = asyncio.create_task(renew(), name=f"renew-{batch_id}")
    try:
        yield
    finally:
        renewer.cancel()
        await asyncio.gather(renewer, return_exceptions=True)
