"""``python -m tests.soak``: soak a whole service for minutes, print a page, write all of it as JSON."""

import json
import shutil
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

from rich.console import Console

from tests.soak.run import soak
from tests.soak.schedule import draw

_RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def main() -> int:
    """Soak as the command line says; returns 1 where a promise was broken, and keeps the folder then."""
    parser = ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long faults come (600)")
    parser.add_argument("--seed", type=int, default=1, help="draws orders and faults: the same seed, the same soak")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="folder for the JSON")
    given = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=140)
    folder = Path(tempfile.mkdtemp(prefix="slackwater-soak-"))
    console.print(f"soaking in {folder}")
    report = soak(draw(given.seed, given.seconds), folder, say=console.print)
    console.print(report.page())
    given.results.mkdir(parents=True, exist_ok=True)
    written = given.results / f"soak-{given.seconds:.0f}s-seed{given.seed}.json"
    written.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    console.print(f"written to {written}", soft_wrap=True)
    if report.violations:
        console.print(f"logs are kept in {folder}", soft_wrap=True)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
