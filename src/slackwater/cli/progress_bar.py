"""The live bars on a terminal. stdout is left alone: results may be going there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from slackwater.cli.people_text import plain, size
from slackwater.cli.progress import Progress, counts, rates


class BatchBar:
    """One batch's bar: status, requests done of all, failed, speed, time left."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID = bars.add_task("submitted", total=None, counts="", rates="")

    def show(self, progress: Progress, at_seconds: float) -> None:  # noqa: ARG002 -- the bar refreshes itself
        """Move the bar; while the number of requests is not known it pulses."""
        self._bars.update(
            self._task,
            description=progress.status.replace("_", " "),
            total=progress.total or None,
            completed=progress.done,
            counts=counts(progress),
            rates=rates(progress),
        )

    def note(self, message: str) -> None:
        """Print the message above the bar."""
        self._bars.console.print(plain(message), markup=False, highlight=False)


@contextmanager
def batch_bar(console: Console | None = None) -> Iterator[BatchBar]:
    """Show a batch's bar on stderr (or ``console``) until the block ends; its last state stays."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[counts]}", markup=False),
        TextColumn("{task.fields[rates]}", markup=False, style="dim"),
    )
    with _bars(*columns, console=console) as bars:
        yield BatchBar(bars)


@contextmanager
def upload_bar(length_bytes: int | None, console: Console | None = None) -> Iterator[Callable[[int], object]]:
    """Show an upload's bar on stderr (or ``console``) until the block ends."""
    with _bars(TextColumn("uploading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=console) as bars:
        task = bars.add_task("uploading", total=length_bytes)
        yield lambda sent_bytes: bars.update(task, completed=sent_bytes)


class CopyBar:
    """The bar of a backup or a restore: one phase after another, by bytes where they are known, else by count."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._by_size = False
        self._task: TaskID = bars.add_task("", total=None, counts="")

    def begun(self, phase: str, *, count: int | None = None, size_bytes: int | None = None) -> None:
        """Begin a phase anew."""
        self._by_size = size_bytes is not None
        counts = "" if size_bytes is None else f"{count or 0:,} of {size(size_bytes)}"
        self._bars.reset(self._task, total=size_bytes if self._by_size else count, description=phase, counts=counts)

    def moved(self, *, count: int, size_bytes: int) -> None:
        """Move the bar."""
        self._bars.advance(self._task, size_bytes if self._by_size else count)


@contextmanager
def copy_bar(console: Console | None = None) -> Iterator[CopyBar]:
    """Show the bar of a backup or a restore on stderr (or ``console``) until the block ends."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[counts]}", markup=False),
    )
    with _bars(*columns, console=console) as bars:
        yield CopyBar(bars)


def _bars(*columns: TextColumn | BarColumn | DownloadColumn | TransferSpeedColumn, console: Console | None) -> Bars:
    return Bars(
        *columns,
        console=console or Console(stderr=True),
        refresh_per_second=5,
        redirect_stdout=False,
        redirect_stderr=False,
    )
