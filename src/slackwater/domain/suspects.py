"""Which line kills the engine: the lines that were at it when it died, bisected with nothing else running.

::

    n suspects ──► the first half runs alone
                     the engine lives: those are cleared, and the other half runs alone, whole
                     it dies:          whoever was still at it is suspected on, all others are cleared
    one suspect ──► runs alone; if the engine dies once more, that line is to blame

Every death but the first at least halves the suspects, so that one such line costs at most ``ceil(log2 n) + 1`` deaths
in all. An outage that no line is to blame for costs two rounds in which the engine is full of suspects.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class Trial(Generic[Line]):
    """Suspects that run alone now, and those that wait for the outcome."""

    running: tuple[Line, ...]
    waiting: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Verdict(Generic[Line]):
    """What a trial showed of those who did not answer in it; whoever did is no suspect any more."""

    suspects: tuple[Line, ...]
    """To be tried next."""
    cleared: tuple[Line, ...]
    """No longer suspected, without having run: they run again with everybody else."""
    guilty: Line | None = None
    """To blame: never tried again."""


def next_trial(suspects: Sequence[Line], *, half: bool) -> Trial[Line]:
    """Choose who runs alone next: the first half, or all where another half has just been cleared.

    ``suspects`` must not be empty.
    """
    running = (len(suspects) + 1) // 2 if half else len(suspects)
    return Trial(tuple(suspects[:running]), tuple(suspects[running:]))


def verdict(trial: Trial[Line], killed: Collection[Line]) -> Verdict[Line]:
    """Conclude from a trial: ``killed`` are its lines that were at the engine when it died; none when it lives."""
    if not killed:
        return Verdict(suspects=trial.waiting, cleared=())
    suspects = tuple(line for line in trial.running if line in killed)
    if len(suspects) == 1:
        return Verdict(suspects=(), cleared=trial.waiting, guilty=suspects[0])
    return Verdict(suspects=suspects, cleared=trial.waiting)
