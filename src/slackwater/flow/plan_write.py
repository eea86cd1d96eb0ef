"""The second pass of planning: writes the objects of a plan, which nobody sees before the plan is published."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import TypeVar

from slackwater.blobs.protocol import BlobStore, BlobWriter, Written
from slackwater.flow.plan_scratch import PlanScratch
from slackwater.flow.plan_sums import Piece

KeepClaim = Callable[[], Awaitable[None]]
T = TypeVar("T")


async def write_plan(
    blobs: BlobStore,
    pieces: Iterable[Piece],
    *,
    scratch: PlanScratch,
    plan_key: str | None,
    index_key: str,
    keep_claim: KeepClaim,
) -> None:
    """Write the plan object (none where ``plan_key`` is None) and its index, both durable on return.

    ``pieces`` are made of ``scratch``, the next one while one is being written.
    """
    async with AsyncExitStack() as writers:
        index: BlobWriter = await writers.enter_async_context(blobs.writer(index_key, stage="plan.index"))
        plan: BlobWriter | None = None
        if plan_key is not None:
            plan = await writers.enter_async_context(blobs.writer(plan_key, stage="plan.write"))

        async def write(piece: Piece) -> None:
            await keep_claim()
            if plan is not None and piece.lines:
                await plan.write(piece.lines)
            if piece.entries:
                await index.write(piece.entries)

        await _one_ahead(iter(pieces), write, scratch)
        if plan is not None:
            await plan.finish()
        await index.finish()


async def write_errors(
    blobs: BlobStore, scratch: PlanScratch, *, key: str, keep_claim: KeepClaim
) -> tuple[Written, int]:
    """Write the error lines of a plan as one object; returns what was written and its CRC-32."""
    crc32 = 0
    async with blobs.writer(key, stage="plan.errors") as writer:

        async def write(piece: bytes) -> None:
            nonlocal crc32
            await keep_claim()
            crc32 = zlib.crc32(piece, crc32)
            await writer.write(piece)

        await _one_ahead(scratch.error_lines.pieces(), write, scratch)
        return await writer.finish(), crc32


async def _one_ahead(pieces: Iterator[T], write: Callable[[T], Awaitable[None]], scratch: PlanScratch) -> None:
    """Write every piece while the next one is made."""

    def make() -> asyncio.Task[T | None]:
        return asyncio.create_task(scratch.off_loop_if_long(lambda: next(pieces, None)))

    upcoming = make()
    try:
        while (piece := await upcoming) is not None:
            upcoming = make()
            await write(piece)
    finally:
        # Its thread reads files that are about to be closed.
        upcoming.cancel()
        await asyncio.wait((upcoming,))
