"""The auditor: reads a batch's input, output and error files as a stranger would and checks what was promised.

Checked are invariants 1 and 3 of the design: every valid input line has exactly one result, counts add up, usage is
the sum over committed lines, only succeeded lines cost, and every pointer leads to the very bytes it names. Nothing
of the service's own code reads the files here: lines are split and parsed with the standard library.
"""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.blobs.protocol import BlobStore
from slackwater.db.queue.auditing import AuditedBatch, audited_batch
from slackwater.db.queue.results import ResultObject
from slackwater.db.session import Database
from slackwater.domain.errors import NotFound, ObjectMissing

_SHOWN: Final = 5
_TERMINAL: Final = frozenset({"completed", "expired", "cancelled"})


@dataclass(kw_only=True, slots=True)
class Report:
    """What an audit found; an empty list of faults means that every promise was kept."""

    batch_id: str
    status: str
    lines: int = 0
    """Request lines in the input."""
    succeeded: int = 0
    """Lines in the output file."""
    failed: int = 0
    """Lines in the error file."""
    checks: list[str] = field(default_factory=list)
    """What was checked and held."""
    unchecked: list[str] = field(default_factory=list)
    """What cannot be checked any more, since its owner has deleted it or its time is over."""
    faults: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def check(self, holds: bool, what: str, found: str = "") -> None:  # noqa: FBT001  the verdict is the subject
        """Note one check."""
        if holds:
            self.checks.append(what)
        else:
            self.faults.append(f"{what}: {found}" if found else what)


async def audit(db: Database, store: BlobStore, batch_id: str) -> Report:
    """Audit one batch that has ended. Raises NotFound. Memory: the custom ids of the batch."""
    batch = await audited_batch(db, batch_id)
    if batch is None:
        raise NotFound(f"no batch {batch_id!r}")
    report = Report(batch_id=batch_id, status=batch.status)
    if batch.status == "failed":
        report.check(bool(batch.errors), "a failed batch says why")
        report.check(batch.output_key is None and batch.error_key is None, "a failed batch has no result files")
        report.check(batch.ledger.rows == 0, "a failed batch is charged nothing", f"{batch.ledger.rows} rows")
        return report
    report.check(batch.status in _TERMINAL, "the batch has ended", batch.status)
    if batch.status not in _TERMINAL:
        return report
    if not batch.planned:
        report.check(
            batch.total == 0, "a batch that was stopped before it was planned counts nothing", f"{batch.total}"
        )
        report.check(batch.output_key is batch.error_key is None, "it has no result files")
        _check_ledger(batch, report)
        return report
    try:
        gone = await _gone(store, batch, report)
        await _check_lines(store, batch, report, gone)
        await _check_pointers(store, batch, report, gone)
    except ObjectMissing as error:
        report.faults.append(f"an object is missing: {error}")
    _check_ledger(batch, report)
    return report


async def _check_lines(store: BlobStore, batch: AuditedBatch, report: Report, gone: frozenset[str | None]) -> None:
    """Every valid input line exactly once over the two files, and the counts are the files'."""
    output = _FileFacts()
    errors = _FileFacts()
    await _read_results(store, None if batch.output_key in gone else batch.output_key, output, report)
    await _read_results(store, None if batch.error_key in gone else batch.error_key, errors, report)
    report.succeeded, report.failed = output.lines, errors.lines
    unique = not (output.ids & errors.ids or output.repeated or errors.repeated)
    report.check(unique, "result ids are unique")
    if batch.input_key not in gone:
        asked, undecodable = await _read_input(store, batch.input_key)
        report.lines = asked.total() + undecodable
        report.check(batch.total == report.lines, "total is the number of requests", f"{batch.total}, {report.lines}")
        if not gone:
            _check_ids(asked, undecodable, output, errors, report)
    _check_counts(batch, report)
    if batch.output_key not in gone:
        _check_output(batch, output, report)
    if batch.error_key not in gone:
        _check_errors(batch, errors, report)


async def _gone(store: BlobStore, batch: AuditedBatch, report: Report) -> frozenset[str | None]:
    """Return the keys of deleted files whose bytes are gone, and note that they cannot be checked."""
    gone: set[str] = set()
    named = {batch.input_key: "input", batch.output_key: "output file", batch.error_key: "error file"}
    for key in sorted(batch.deleted_keys):
        try:
            await store.size(key)
        except ObjectMissing:
            gone.add(key)
            report.unchecked.append(f"the {named[key]} was deleted or has expired: its lines cannot be read any more")
    for pointer in batch.file_pointers:
        if pointer.key == batch.input_key and pointer.key not in gone and not await _is_whole(store, pointer):
            gone.add(pointer.key)
            report.unchecked.append("the input was lost or changed in the store: its lines cannot be read any more")
    return frozenset(gone)


async def _read_input(store: BlobStore, key: str) -> "tuple[Counter[str | None], int]":
    """Count the requests of an input by custom id, and those whose id cannot be read."""
    asked: Counter[str | None] = Counter()
    undecodable = 0
    async for line in _lines(store, key):
        custom_id = _custom_id(line)
        if custom_id is None:
            undecodable += 1
        else:
            asked[custom_id] += 1
    return asked, undecodable


def _check_ids(
    asked: "Counter[str | None]", undecodable: int, output: "_FileFacts", errors: "_FileFacts", report: Report
) -> None:
    """Every request has exactly one result; a line without a usable name has one that bears none."""
    answered = output.custom_ids + errors.custom_ids
    nameless = answered.pop(None, 0)
    missing = [custom_id for custom_id in asked if custom_id not in answered]
    twice = [custom_id for custom_id, times in answered.items() if times > max(1, asked[custom_id])]
    strangers = [custom_id for custom_id in answered if custom_id not in asked]
    # Lines that no result names: only results without a name, or under one that we cannot read, may be theirs.
    unnamed = undecodable + sum(asked[custom_id] for custom_id in missing)
    unmatched = len(strangers) + nameless
    report.check(
        unnamed <= unmatched, "every request has a result", f"{unnamed - unmatched} have none: {missing[:_SHOWN]}"
    )
    report.check(not twice, "no request has two results", f"{len(twice)} have more: {twice[:_SHOWN]}")
    matched = unmatched <= unnamed and len(strangers) <= undecodable
    report.check(matched, "every result has a request", f"{unmatched} for {unnamed}: {strangers[:_SHOWN]}")


def _check_counts(batch: AuditedBatch, report: Report) -> None:
    """The counts of the batch add up."""
    failed = batch.errored + batch.cancelled + batch.expired
    counted = f"succeeded {batch.succeeded}, failed {failed}, total {batch.total}"
    report.check(batch.succeeded + failed == batch.total, "counts add up", counted)


def _check_output(batch: AuditedBatch, output: "_FileFacts", report: Report) -> None:
    """What the batch counts as completed and as usage is what its output file holds."""
    found = f"{batch.succeeded}, {output.lines} lines"
    report.check(batch.succeeded == output.lines, "completed is the number of outputs", found)
    report.check((batch.output_key is None) == (output.lines == 0), "there is an output file only with lines")
    stated = (batch.input_tokens, batch.output_tokens)
    summed = (output.input_tokens, output.output_tokens)
    report.check(stated == summed, "usage is the sum over the output lines", f"batch {stated}, lines {summed}")


def _check_errors(batch: AuditedBatch, errors: "_FileFacts", report: Report) -> None:
    """What the batch counts as failed is what its error file holds, and none of it costs."""
    failed = batch.errored + batch.cancelled + batch.expired
    report.check(failed == errors.lines, "failed is the number of errors", f"{failed}, {errors.lines} lines")
    report.check((batch.error_key is None) == (errors.lines == 0), "there is an error file only with lines")
    report.check(errors.input_tokens == errors.output_tokens == 0, "no error line has usage")


class _FileFacts:
    """What one result file holds."""

    def __init__(self) -> None:
        self.lines = 0
        self.custom_ids: Counter[str | None] = Counter()
        """None: of lines whose request had no name that could be used."""
        self.ids: set[str] = set()
        self.repeated = False
        self.input_tokens = 0
        self.output_tokens = 0


async def _read_results(store: BlobStore, key: str | None, facts: _FileFacts, report: Report) -> None:
    """Read one result file line by line, strictly."""
    if key is None:
        return
    async for raw in _lines(store, key):
        facts.lines += 1
        try:
            line: dict[str, Any] = json.loads(raw.decode(), parse_constant=_refuse)
            custom_id, line_id = line["custom_id"], line["id"]
        except (ValueError, KeyError, TypeError) as error:
            report.faults.append(f"line {facts.lines} of {key} is not a result: {error}")
            continue
        if len(raw.decode().splitlines()) != 1:
            report.faults.append(f"line {facts.lines} of {key} is several lines to some readers")
        facts.custom_ids[custom_id] += 1
        facts.repeated |= line_id in facts.ids
        facts.ids.add(line_id)
        usage = ((line.get("response") or {}).get("body") or {}).get("usage") or {}
        facts.input_tokens += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        # Messages count what a cache read or took apart from the rest.
        facts.input_tokens += (usage.get("cache_read_input_tokens") or 0) + (
            usage.get("cache_creation_input_tokens") or 0
        )
        facts.output_tokens += usage.get("completion_tokens") or usage.get("output_tokens") or 0


async def _check_pointers(store: BlobStore, batch: AuditedBatch, report: Report, gone: frozenset[str | None]) -> None:
    """Every pointer of a file or a committed chunk leads to the bytes it names."""
    # A part that is a whole batch's results is also its file, and goes with it.
    named = (*batch.file_pointers, *batch.part_pointers)
    pointers = [pointer for pointer in named if pointer.key not in gone]
    wrong = [pointer.key for pointer in pointers if not await _is_whole(store, pointer)]
    report.check(not wrong, f"{len(pointers)} stored objects are as their rows say", f"{wrong[:_SHOWN]}")


async def _is_whole(store: BlobStore, pointer: ResultObject) -> bool:
    """Tell whether an object is there and holds the bytes that its row names."""
    digest, size = hashlib.sha256(), 0
    try:
        async for piece in store.read(pointer.key):
            digest.update(piece)
            size += len(piece)
    except ObjectMissing:
        return False
    return (size, digest.hexdigest()) == (pointer.size_bytes, pointer.sha256)


def _check_ledger(batch: AuditedBatch, report: Report) -> None:
    """The ledger has one row a committed chunk, adds up to the batch, and only succeeded lines cost."""
    ledger = batch.ledger
    if batch.chunks_kept:
        report.check(batch.chunks_kept == batch.chunks_total, "every chunk has its row")
        report.check(ledger.rows == batch.chunks_committed, "one ledger row a committed chunk", f"{ledger.rows}")
    report.check(ledger.succeeded == batch.succeeded, "the ledger counts the succeeded lines", f"{ledger.succeeded}")
    tokens = (ledger.input_tokens, ledger.output_tokens)
    report.check(
        tokens == (batch.input_tokens, batch.output_tokens), "the ledger adds up to the batch's usage", f"{tokens}"
    )
    costly = ledger.costly_without_success
    report.check(costly == 0, "only succeeded lines cost", f"{costly} rows")


async def _lines(store: BlobStore, key: str) -> AsyncIterator[bytes]:
    """Split an object into its lines, on line feeds only; blank lines are none."""
    rest = b""
    first = True
    async for piece in store.read(key):
        data = rest + piece
        if first:
            data = data.removeprefix(b"\xef\xbb\xbf")
            first = False
        *whole, rest = data.split(b"\n")
        for line in whole:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


def _custom_id(line: bytes) -> str | None:
    """Read an input line's custom id; None where the line has none that is usable."""
    try:
        found = json.loads(line.decode())["custom_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
