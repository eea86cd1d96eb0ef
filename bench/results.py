"""Results on disk, as a table for people, and as a block of docs/benchmarks.md."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from rich.table import Table

from bench.figures import Figure, shown
from bench.machine import headline, warnings

LATEST: Final = "latest.json"
_BEGIN: Final = "<!-- figures: begin (python -m bench --write-docs) -->"
_END: Final = "<!-- figures: end -->"
_COLORS: Final = {"ok": "green", "missed": "bold red", None: ""}


@dataclass(kw_only=True, slots=True)
class Results:
    """What one run of the benchmarks measured."""

    began_at: str
    """UTC, ISO 8601."""
    scale: str
    machine: dict[str, Any]
    figures: dict[str, list[Figure]] = field(default_factory=dict)
    """By benchmark, in order."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why benchmarks came to no end."""

    def rows(self) -> Iterator[tuple[str, Figure]]:
        """Yield every figure with the name of its benchmark."""
        for name, figures in self.figures.items():
            for each in figures:
                yield name, each

    def write(self, folder: Path) -> Path:
        """Write the results under their time, and again as the latest; returns the former's path."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"
        path = folder / f"{self.began_at.replace(':', '')}-{self.scale}.json"
        path.write_text(text)
        (folder / LATEST).write_text(text)
        return path

    def to_json(self) -> dict[str, Any]:
        """Return what is written."""
        figures = {name: [each.to_json() for each in found] for name, found in self.figures.items()}
        return {
            "began_at": self.began_at,
            "scale": self.scale,
            "machine": self.machine,
            "warnings": warnings(self.machine),
            "figures": figures,
            "failures": self.failures,
        }

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote."""
        fields = json.loads(path.read_text())
        return cls(
            began_at=fields["began_at"],
            scale=fields["scale"],
            machine=fields["machine"],
            figures={name: [Figure.from_json(each) for each in found] for name, found in fields["figures"].items()},
            failures=fields["failures"],
        )

    def table(self) -> Table:
        """Return the one table of all figures."""
        table = Table(title=f"{headline(self.machine)}; {self.scale} run of {self.began_at}", title_justify="left")
        for name in ("benchmark", "figure"):
            table.add_column(name)
        for name in ("median", "spread", "target"):
            table.add_column(name, justify="right")
        table.add_column("")
        earlier = ""
        for name, each in self.rows():
            if earlier and name != earlier:
                table.add_section()
            table.add_row("" if name == earlier else name, *_cells(each), style=_COLORS[each.verdict])
            earlier = name
        return table

    def markdown(self) -> str:
        """Return the same table for a page, with what the machine was."""
        lines = [f"A {self.scale} run of {self.began_at} on {headline(self.machine)}.", ""]
        lines += [f"**Not to be trusted: {warning}.**\n" for warning in warnings(self.machine)]
        lines += ["| benchmark | figure | median | spread | target | |", "|---|---|---:|---:|---:|---|"]
        lines += [f"| {name} | {' | '.join(_cells(each))} |" for name, each in self.rows()]
        lines += [f"\n`{name}` came to no end: {cause}" for name, cause in self.failures.items()]
        return "\n".join(lines) + "\n"


def with_figures(page: str, runs: Sequence[Results]) -> str:
    """Return a page of documentation with the block between its markers replaced by runs. Raises ValueError without."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no block between {_BEGIN} and {_END}")
    blocks = "\n".join(run.markdown() for run in runs)
    return f"{before}{_BEGIN}\n\n{blocks}\n{_END}{after}"


def _cells(each: Figure) -> tuple[str, str, str, str, str]:
    target = "" if each.target is None else str(each.target)
    return each.name, f"{shown(each.value)} {each.unit}", each.spread, target, each.verdict or ""
