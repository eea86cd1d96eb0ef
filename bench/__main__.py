"""``python -m bench``: measure, print one table, write the results as JSON. Loopback only; every run is bounded."""

import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.catalogue import BENCHMARKS, Benchmark, chosen
from bench.machine import machine_facts, warnings
from bench.results import LATEST, Results, with_figures
from bench.scale import FULL, NORMAL, QUICK, Progress, Run, Scale
from bench.vllm_programs import find_python
from slackwater.logs import configure

_CHECKOUT: Final = Path(__file__).resolve().parents[1]
_RESULTS: Final = _CHECKOUT / "bench" / "results"
_PAGE: Final = _CHECKOUT / "docs" / "benchmarks.md"
_TERMINATED: Final = 143
_WIDTH_OF_A_PIPE: Final = 160


def main() -> int:
    """Do what the command line asks; returns the exit code: 1 where a benchmark came to no end."""
    given = _parsed()
    if given.list:
        for each in BENCHMARKS:
            print(f"{each.name:12}{each.subject}{' (with --full)' if each.full_only else ''}")
        return 0
    if given.write_docs:
        runs = [Results.read(path) for path in given.results or [_RESULTS / LATEST]]
        _PAGE.write_text(with_figures(_PAGE.read_text(), runs))
        return 0
    configure("error", stream=sys.stderr, terminal=sys.stderr.isatty())
    # What was started is ended by the blocks that started it, however this run ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    return _measure(chosen(given.only), QUICK if given.quick else FULL if given.full else NORMAL)


def _measure(benchmarks: tuple[Benchmark, ...], scale: Scale) -> int:
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_OF_A_PIPE)
    progress = Progress()
    began_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = machine_facts(folder=Path(tempfile.gettempdir()).resolve(), engine=find_python(_CHECKOUT))
    results = Results(began_at=began_at, scale=scale.name, machine=facts)
    for warning in warnings(facts):
        progress.say(f"warning: {warning}")
    try:
        for benchmark in benchmarks:
            _measure_one(benchmark, scale, results, progress)
    finally:
        # What is measured is shown and kept, also where the run is broken off.
        progress.clear()
        _show(results, console)
        console.print(f"written to {results.write(_RESULTS)}", soft_wrap=True)
    return 1 if results.failures else 0


def _show(results: Results, console: Console) -> None:
    console.print(results.table())
    for warning in warnings(results.machine):
        console.print(f"warning: {warning}", style="yellow")
    for name, cause in results.failures.items():
        console.print(f"{name} came to no end: {cause}", markup=False, style="bold red")


def _measure_one(benchmark: Benchmark, scale: Scale, results: Results, progress: Progress) -> None:
    """Run one benchmark in a folder of its own; where it fails the others go on without it."""
    folder = Path(tempfile.mkdtemp(prefix=f"slackwater-bench-{benchmark.name}-"))
    run = Run(scale=scale, folder=folder, checkout=_CHECKOUT, progress=progress)
    try:
        figures = list(benchmark.measure(run))
    except Exception as error:  # noqa: BLE001  hours of other measurements must not be lost with one
        results.failures[benchmark.name] = f"{type(error).__name__}: {error}"
        progress.say(f"{benchmark.name} came to no end: {error}")
    else:
        if figures:
            results.figures[benchmark.name] = figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parsed() -> Namespace:
    parser = ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes and one round: shows that everything works")
    size.add_argument("--full", action="store_true", help="also one batch of a million lines through everything")
    parser.add_argument("--only", metavar="NAME[,NAME]", help="these benchmarks alone")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument(
        "--write-docs", action="store_true", help="write results into docs/benchmarks.md, measure nothing"
    )
    parser.add_argument(
        "--results", type=Path, nargs="+", help="the runs to write, one after the other; the latest by default"
    )
    given = parser.parse_args()
    try:
        chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    return given


if __name__ == "__main__":
    sys.exit(main())
