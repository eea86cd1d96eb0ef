"""From a scanned input to the objects and the chunks of its plan."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.planning import KnownModel, PlanClaim, PlannedChunk, RefusedLines
from slackwater.db.queue.results import StoredRange
from slackwater.domain.cutting import CutRules, Workload, is_one_chunk
from slackwater.domain.limits import InputLimits
from slackwater.domain.scan import InputScan
from slackwater.flow.plan_layout import (
    ChunkBook,
    Segment,
    in_place,
    refused_entries,
    rewritten,
    segments_around_probe,
    segments_by_model,
    segments_with_probe,
)
from slackwater.flow.plan_probe import LEAST_LINES, random_lines, random_run
from slackwater.flow.plan_scratch import PlanScratch
from slackwater.flow.plan_sort import SortedRecords, may_gain, read_run
from slackwater.flow.plan_sums import Piece, SummedPieces
from slackwater.flow.plan_write import KeepClaim, write_errors, write_plan


class BuiltPlan(NamedTuple):
    """A plan whose objects are durable, ready to be published."""

    plan_key: str | None
    """None where the chunks point into the input."""
    index_key: str
    chunks: list[PlannedChunk]
    refused: RefusedLines | None


class PlanBuilder:
    """Builds the plan of one claim."""

    def __init__(
        self,
        claim: PlanClaim,
        scan: InputScan,
        scratch: PlanScratch,
        *,
        rules: CutRules,
        known: Mapping[str, KnownModel],
        choose: Callable[[int], int],
        limits: InputLimits,
    ) -> None:
        """``known`` are models by served id; ``choose`` gives a random number below its argument."""
        self._claim = claim
        self._scan = scan
        self._scratch = scratch
        self._rules = rules
        self._choose = choose
        self._limits = limits
        self._workloads = workloads(scan, known)
        self._book = ChunkBook(rules, scan.models, self._workloads)

    async def build(self, blobs: BlobStore, *, keep_claim: KeepClaim) -> BuiltPlan:
        """Sort, cut and write. Raises what the store and ``keep_claim`` raise."""
        claim = self._claim
        order = await self._scratch.off_loop_if_long(self._order)
        await keep_claim()
        plan_key = keys.plan_key(claim.batch_id, claim.claim_token) if order is not None else None
        index_key = keys.plan_index_key(claim.batch_id, claim.claim_token)
        sums = SummedPieces(moved=order is not None)
        pieces = chain(self._lines(order, sums), self._refused(sums))
        scratch = self._scratch
        await write_plan(blobs, pieces, scratch=scratch, plan_key=plan_key, index_key=index_key, keep_claim=keep_claim)
        source = scratch.input
        chunks = await scratch.off_loop_if_long(lambda: sums.seal(self._book.chunks(), index_key, source))
        refused = None
        if self._scan.n_refused:
            refused = await self._write_refused(blobs, keep_claim, sums.entries_of(len(chunks), index_key))
        return BuiltPlan(plan_key, index_key, chunks, refused)

    def _order(self) -> SortedRecords | None:
        """Return the order to write the lines in; None where they stay as they are."""
        records = self._scratch.records
        # Lines that are answered already must not stand in the bytes of a chunk.
        must_move = self._scan.n_refused > 0
        if not self._workloads or not (must_move or self._may_gain()):
            return None
        order = SortedRecords(records, self._scratch.file())
        return order if must_move or order.gains() else None

    def _may_gain(self) -> bool:
        if len(self._workloads) > 1:
            return True
        (workload,) = self._workloads.values()
        return not is_one_chunk(self._rules, workload) and may_gain(self._scratch.records)

    def _lines(self, order: SortedRecords | None, sums: SummedPieces) -> Iterator[Piece]:
        source, records = self._scratch.input, self._scratch.records
        if order is None:
            return in_place(self._unmoved(), source, sums)
        if self._wants_probe:
            probe = random_lines(records, self._choose, max_bytes=self._rules.max_bytes)
            return rewritten(segments_with_probe(order, probe, self._book), source, sums)
        return rewritten(segments_by_model(order, self._book), source, sums)

    def _unmoved(self) -> Iterator[Segment]:
        records = self._scratch.records
        in_order = read_run(records, 0, records.size_bytes)
        if self._wants_probe:
            run = random_run(records, self._choose, max_bytes=self._rules.max_bytes)
            return segments_around_probe(in_order, run, self._book)
        return segments_by_model(in_order, self._book)

    @property
    def _wants_probe(self) -> bool:
        return len(self._workloads) == 1 and self._scan.tally.n_accepted.total() > LEAST_LINES

    def _refused(self, sums: SummedPieces) -> Iterator[Piece]:
        """Write the index of refused lines. Begins when all others are written: their chunk is the last."""
        refused = self._scratch.refused
        if refused.size_bytes:
            seq = len(self._book.chunks())
            records = read_run(refused, 0, refused.size_bytes)
            yield from refused_entries(records, self._scratch.input, sums, seq=seq, limits=self._limits)

    async def _write_refused(self, blobs: BlobStore, keep_claim: KeepClaim, index: StoredRange) -> RefusedLines:
        claim = self._claim
        key = keys.plan_errors_key(claim.batch_id, claim.claim_token)
        written, crc32 = await write_errors(blobs, self._scratch, key=key, keep_claim=keep_claim)
        return RefusedLines(
            model=next(iter(self._scan.models), ""),
            n_lines=self._scan.n_refused,
            err_key=key,
            err_bytes=written.size_bytes,
            err_sha256=written.sha256,
            err_crc32=crc32,
            index=index,
        )


def workloads(scan: InputScan, known: Mapping[str, KnownModel]) -> dict[int, Workload]:
    """Say what there is to run for each model, by its number in the scan; models without lines to run are left out."""
    total = scan.tally.n_accepted.total()
    loads: dict[int, Workload] = {}
    for number, n_lines in sorted(scan.tally.n_accepted.items()):
        facts = known[scan.models[number]]
        loads[number] = Workload(
            n_lines=n_lines,
            # Only the file's mean is known; a chunk's bytes are bounded by what it really holds.
            n_bytes=scan.tally.accepted_bytes * n_lines // total,
            seconds_per_line=facts.seconds_per_line,
            live_workers=facts.live_workers,
        )
    return loads
