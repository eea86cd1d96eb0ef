"""A soak's report: one page for people, all of it as JSON."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tests.soak.oracle import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """How long one kind of fault took to be got over, in seconds."""

    measured: int
    median: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Recovery":
        """Sum up what was measured; at least one."""
        return cls(measured=len(seconds), median=round(statistics.median(seconds), 2), longest=round(max(seconds), 2))


@dataclass(kw_only=True)
class Report:
    """What a soak came to."""

    seed: int
    seconds: float
    batches: Counter[str]
    """By how they ended."""
    verdict: Verdict
    unsound: dict[str, list[str]]
    """What the auditor found wrong, by batch."""
    not_ended: list[str]
    gave_up: dict[str, str]
    """Orders whose customers had to give up, and why."""
    repeated_batches: int
    """Batches that nobody ordered."""
    unasked_ends: list[str]
    """Roles that ended though nobody had told them to."""
    faults: Mapping[str, int]
    left_out: Mapping[str, int]
    """Faults of the schedule that were not done."""
    recoveries: dict[str, Recovery]
    unseen: Mapping[str, int]
    """Faults of which it was not seen that they were got over."""
    taken: int
    """Requests that engines took in, all tries counted."""
    rerun: int
    """Of these, those whose line an engine had taken in before."""
    lines_once: int
    """Lines that an engine ever took in."""
    settle_seconds: float
    """From the last fault's end to the last batch's."""
    customers: Sequence[Any] = ()
    """Every order and what came of it."""
    warnings: Counter[str] = field(default_factory=Counter)
    """What the roles logged as warnings and errors, by event."""

    @property
    def violations(self) -> dict[str, int]:
        """Promises that were broken, by name; empty when all were kept."""
        found = dict(self.verdict.wrongs)
        lists = {
            "unsound batches": len(self.unsound),
            "batches that did not end": len(self.not_ended),
            "customers who gave up": len(self.gave_up),
            "batches that nobody ordered": self.repeated_batches,
            "roles that ended unasked": len(self.unasked_ends),
        }
        return found | {name: count for name, count in lists.items() if count}

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields | {"violations": self.violations}

    def page(self) -> Group:
        """Return the one page."""
        faults = Table(title="Faults, and the time to get over them", title_justify="left")
        for name in ("fault", "times", "measured", "median", "longest"):
            faults.add_column(name, justify="left" if name == "fault" else "right")
        for kind, times in sorted(self.faults.items()):
            recovery = self.recoveries.get(kind)
            cells = ("", "", "") if recovery is None else _seconds(recovery)
            faults.add_row(kind, str(times), *cells)
        return Group(self._summary(), faults, self._end())

    def _summary(self) -> Table:
        verdict = self.verdict
        table = Table(title=f"Soak of {self.seconds:.0f} s, seed {self.seed}", title_justify="left", show_header=False)
        ended = ", ".join(f"{count} {status}" for status, count in sorted(self.batches.items()))
        rows = {
            "batches": f"{self.batches.total()}: {ended}",
            "lines": f"{verdict.lines:,}: {verdict.answered:,} answered, {verdict.errors.total():,} errors",
            "error lines": ", ".join(f"{count} {why}" for why, count in sorted(verdict.errors.items())),
            "lost, doubled, crossed": f"{verdict.lost}, {verdict.doubled}, {verdict.crossed}",
            "innocent lines failed": str(verdict.innocent),
            "unsound batches": str(len(self.unsound)),
            "re-run lines": f"{self.rerun:,} runs beyond the first of {self.lines_once:,} lines",
            "faults": f"{sum(self.faults.values())}, {sum(self.left_out.values())} left out",
            "all ended": f"{self.settle_seconds:.0f} s after the last fault",
        }
        for name, value in rows.items():
            table.add_row(name, value)
        return table

    def _end(self) -> Text:
        if not self.violations:
            return Text("Every promise was kept.", style="green")
        broken = ", ".join(f"{name}: {count}" for name, count in self.violations.items())
        return Text(f"Promises broken: {broken}", style="bold red")


def _seconds(recovery: Recovery) -> tuple[str, str, str]:
    return str(recovery.measured), f"{recovery.median:.1f} s", f"{recovery.longest:.1f} s"
