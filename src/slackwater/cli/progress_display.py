"""Where progress is shown while a person waits: a live bar on a terminal, now and then a line elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from slackwater.cli.people_exits import say
from slackwater.cli.progress import Progress, line

_EVERY_SECONDS: Final = 10.0


class Display(Protocol):
    """What a watch shows itself on."""

    def show(self, progress: Progress, at_seconds: float) -> None:
        """Show the latest progress."""
        ...

    def note(self, message: str) -> None:
        """Tell something beside the progress."""
        ...


class Lines:
    """A line on each change of status, and every ten seconds where something moved: a log stays readable."""

    def __init__(self, say: Callable[[str], None] = say) -> None:
        self._say = say
        self._shown: Progress | None = None
        self._shown_at_seconds = 0.0

    def show(self, progress: Progress, at_seconds: float) -> None:
        """Write the line if it is time for one."""
        shown = self._shown
        if shown is not None and shown.status == progress.status:
            moved = shown.done != progress.done
            if not moved or at_seconds - self._shown_at_seconds < _EVERY_SECONDS:
                return
        self._say(line(progress))
        self._shown, self._shown_at_seconds = progress, at_seconds

    def note(self, message: str) -> None:
        """Write the message."""
        self._say(message)


@contextmanager
def display() -> Iterator[Display]:
    """Give the display that fits stderr."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from slackwater.cli.progress_bar import batch_bar  # rich only where it is seen

    with batch_bar() as bar:
        yield bar


@contextmanager
def upload_display(length_bytes: int | None) -> Iterator[Callable[[int], object] | None]:
    """Give what an upload reports its bytes to; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from slackwater.cli.progress_bar import upload_bar  # rich only where it is seen

    with upload_bar(length_bytes) as sent:
        yield sent
