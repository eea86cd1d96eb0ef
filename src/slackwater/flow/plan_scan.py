"""The first pass of planning: read the input once, check every line, and keep on scratch what the second pass needs."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from slackwater.blobs.protocol import BlobStore
from slackwater.domain.duplicates import duplicate_errors
from slackwater.domain.input_errors import InputError
from slackwater.domain.limits import InputLimits
from slackwater.domain.lines import LineSplitter, custom_id_of
from slackwater.domain.scan import InputScan, Scanned
from slackwater.flow.plan_scratch import ScratchFile, in_thread


class PlanObserver(Protocol):
    """Told what the metrics of planning need."""

    def rejected(self, code: str, lines: int) -> None:
        """So many lines were refused for this reason, whether that failed their batch or themselves alone."""
        ...

    def failed(self) -> None:
        """A batch failed for its input."""
        ...


class PlanScratch:
    """The scratch files of one plan. Closing it gives their space back."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must exist and have room for a copy of the input."""
        self._files = ExitStack()
        self._folder = folder
        self.input = self.file()
        """The input, byte for byte."""
        self.records = self.file()
        """Records of the lines to run, in order of the file."""
        self.refused = self.file()
        """Records of the lines that are answered already."""
        self.error_lines = self.file()
        """Their answers."""

    def file(self) -> ScratchFile:
        """Make one more file."""
        return self._files.enter_context(ScratchFile(self._folder))

    def take(self, block: bytes, scanned: Scanned) -> None:
        """Keep one block of the input and what became of its lines."""
        self.input.append(block)
        self.records.append(b"".join(scanned.records))
        self.refused.append(b"".join(scanned.refused_records))
        self.error_lines.append(b"".join(scanned.error_lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()


async def scan_input(
    blobs: BlobStore, key: str, scan: InputScan, scratch: PlanScratch, *, keep_claim: Callable[[], Awaitable[None]]
) -> None:
    """Feed the input to the scan, a piece at a time, each in a thread: the event loop goes on meanwhile.

    Stops where the scan does. Raises ObjectMissing, and whatever ``keep_claim`` raises.
    """

    def take(block: bytes) -> None:
        scratch.take(block, scan.feed(block))

    blocks = blobs.read(key)
    try:
        async for block in blocks:
            await keep_claim()
            await in_thread(partial(take, block))
            if scan.stopped:
                return
    finally:
        if isinstance(blocks, AsyncGenerator):
            await blocks.aclose()
    await in_thread(lambda: scratch.take(b"", scan.finish()))


def input_errors(
    scan: InputScan, scratch: PlanScratch, limits: InputLimits, observer: PlanObserver
) -> list[InputError]:
    """Return what fails the batch, as it will be shown; an empty list when nothing does. Reports every refused line.

    Repeated custom_ids are looked for here: it reads the input a second time, but only where there may be any. Blocks
    on the disk.
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
