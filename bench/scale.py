"""How much each benchmark does, and what it is given: sizes, a folder, and a way to say how far it is."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Counts and repetitions of one kind of run."""

    name: str
    rounds: int
    """Repetitions of what takes seconds; comparisons take turns within each."""
    engine_rounds: int
    """Alternations of the comparison on a real engine."""
    warm_up_lines: int
    few_lines: int
    many_lines: int
    most_lines: int
    """Lines of the one very large batch, and of the plan whose memory is measured."""
    with_most_lines: bool
    """Whether that very large batch is run through the whole service."""
    small_batches: int
    idle_requests: int
    upload_megabytes: int
    engine_requests: int
    engine_requests_alone: int
    """Requests of the passes that leave the engine mostly idle."""


NORMAL: Final = Scale(
    name="normal",
    rounds=3,
    engine_rounds=5,
    warm_up_lines=20_000,
    few_lines=10_000,
    many_lines=100_000,
    most_lines=1_000_000,
    with_most_lines=False,
    small_batches=1000,
    idle_requests=20,
    upload_megabytes=200,
    engine_requests=5000,
    engine_requests_alone=200,
)
QUICK: Final = Scale(
    name="quick",
    rounds=1,
    engine_rounds=1,
    warm_up_lines=2000,
    few_lines=1000,
    many_lines=10_000,
    most_lines=20_000,
    with_most_lines=False,
    small_batches=40,
    idle_requests=3,
    upload_megabytes=20,
    engine_requests=500,
    engine_requests_alone=20,
)
FULL: Final = replace(NORMAL, name="full", with_most_lines=True)


class Progress:
    """One line on stderr that says what is being measured; on a terminal it is written over."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Say what happens now."""
        sys.stderr.write(f"\r\x1b[2K{text}" if self._terminal else f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Leave the terminal's line empty for what is printed next."""
        if self._terminal:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What a benchmark is given."""

    scale: Scale
    folder: Path
    """Empty, its own, removed afterwards."""
    checkout: Path
    """The repository, where the engine's environment may be."""
    progress: Progress

    def say(self, text: str) -> None:
        """Say what happens now."""
        self.progress.say(text)
