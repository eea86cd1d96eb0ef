"""The first pass of planning: read the input once, check every line, and keep on scratch what the second pass needs."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.planning import PlanClaim
from slackwater.domain.duplicates import duplicate_errors
from slackwater.domain.errors import ObjectDamaged, StoreUnavailable
from slackwater.domain.input_errors import InputError
from slackwater.domain.limits import InputLimits
from slackwater.domain.lines import LineSplitter, custom_id_of
from slackwater.domain.scan import InputScan
from slackwater.flow.plan_scratch import PlanScratch, ScratchFile


class PlanObserver(Protocol):
    """Told what the metrics of planning need."""

    def rejected(self, code: str, lines: int) -> None:
        """So many lines were refused for this reason, whether that failed their batch or themselves alone."""
        ...

    def failed(self) -> None:
        """A batch failed for its input."""
        ...


async def read_input(
    blobs: BlobStore,
    claim: PlanClaim,
    scan: InputScan,
    scratch: PlanScratch,
    *,
    keep_claim: Callable[[], Awaitable[None]],
) -> None:
    """Feed the input to the scan, a piece at a time; large ones in a thread: the event loop goes on meanwhile.

    Stops where the scan does. Raises ObjectMissing, ObjectDamaged where the input is not what was uploaded, and
    whatever ``keep_claim`` raises.
    """
    digest = hashlib.sha256()

    def take(block: bytes) -> None:
        digest.update(block)
        scratch.take(block, scan.feed(block))

    blocks = blobs.read(claim.input_key)
    try:
        async for block in blocks:
            await keep_claim()
            await scratch.off_loop_if_long(partial(take, block), adding=block)
            if scan.stopped:
                break
    finally:
        if isinstance(blocks, AsyncGenerator):
            await blocks.aclose()
    if scan.stopped:
        # What is refused half way is refused for what the customer sent, or for what became of it.
        async for block in blobs.read(claim.input_key, start=scratch.input.size_bytes):
            await keep_claim()
            digest.update(block)
    if digest.hexdigest() != claim.input_sha256:
        await _insist_on_damage(blobs, claim, keep_claim)
    if not scan.stopped:
        await scratch.off_loop_if_long(lambda: scratch.take(b"", scan.finish()))


async def _insist_on_damage(blobs: BlobStore, claim: PlanClaim, keep_claim: Callable[[], Awaitable[None]]) -> None:
    """Read an input once more that was not what was uploaded: one broken answer of the store must not end a batch.

    Raises ObjectDamaged where it is so again, else StoreUnavailable: what was read before cannot be used.
    """
    digest = hashlib.sha256()
    async for block in blobs.read(claim.input_key):
        await keep_claim()
        digest.update(block)
    if digest.hexdigest() != claim.input_sha256:
        raise ObjectDamaged(f"The object {claim.input_key} in the store is not what was uploaded.")
    raise StoreUnavailable(f"The object {claim.input_key} was read wrong. Try again later.")


def input_errors(
    scan: InputScan, scratch: PlanScratch, limits: InputLimits, observer: PlanObserver
) -> list[InputError]:
    """Return what fails the batch, as it will be shown; an empty list when nothing does. Reports every refused line.

    Repeated custom_ids are looked for here: it reads the input a second time, but only where there may be any. For
    ``PlanScratch.off_loop_if_long``.
    """
    suspects, n_repeated = scan.seen.repeated()
    repeated: list[InputError] = []
    if suspects:
        ids = _custom_ids(scratch.input, limits.max_line_bytes)
        repeated = duplicate_errors(ids, suspects, limit=limits.max_listed_errors)
    for code, lines in (scan.errors.counts + scan.refusals).items():
        observer.rejected(code, lines)
    if repeated:
        observer.rejected(repeated[0].code, n_repeated)
    return scan.errors.entries(repeated, n_repeated if repeated else 0)


def _custom_ids(spooled: ScratchFile, longest_line: int) -> Iterator[tuple[int, str]]:
    """Read the custom_id of every line that has one."""
    splitter = LineSplitter(longest_line)
    number = 0
    for lines in _lines(spooled, splitter):
        number += splitter.dropped_bytes > 0
        for line in lines:
            number += 1
            custom_id = custom_id_of(line)
            if custom_id is not None:
                yield number, custom_id


def _lines(spooled: ScratchFile, splitter: LineSplitter) -> Iterator[list[bytes]]:
    for piece in spooled.pieces():
        yield splitter.feed(piece)
    yield splitter.finish()
