"""What becomes of a run's figures: a file, a table, a block of a page."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench.batch_run import BatchRun
from bench.catalogue import BENCHMARKS, chosen
from bench.figures import figure
from bench.machine import filesystem_of, warnings
from bench.results import LATEST, Results, with_figures

MACHINE = {
    "cores": 2,
    "processor": "any",
    "memory_gib": 8.0,
    "kernel": "6.1",
    "filesystem": "ext4",
    "python": "3.11.7",
    "postgresql": "postgres (PostgreSQL) 18.4",
    "vllm": None,
    "load_average_at_start": 0.2,
    "busy_percent_at_start": 1.0,
}
PAGE = """# Benchmarks

<!-- figures: begin (python -m bench --write-docs) -->
old
<!-- figures: end -->

## Profiles
"""


def results() -> Results:
    return Results(
        began_at="2026-01-02T03:04:05+00:00",
        scale="normal",
        machine=MACHINE,
        figures={
            "control": [
                figure("lines/s", [30_000.0, 20_000.0, 10_000.0], "lines/s", least=25_000.0),
                figure("CPU: api", [0.5], "s"),
            ],
            "idle": [figure("p95", [1.5], "s", most=2.0)],
        },
        failures={"engine": "Failed: no engine is installed"},
    )


def test_results_survive_their_file(tmp_path: Path) -> None:
    written = results()

    path = written.write(tmp_path / "results")

    assert Results.read(path) == Results.read(path.with_name(LATEST)) == written


def test_the_table_holds_every_figure_beside_its_target() -> None:
    out = io.StringIO()

    Console(file=out, width=200).print(results().table())

    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.getvalue().splitlines() if "│" in row]
    assert rows == [
        ["control", "lines/s", "20,000 lines/s", "10,000–30,000", "≥ 25,000", "missed"],
        ["", "CPU: api", "0.5 s", "", "", ""],
        ["idle", "p95", "1.5 s", "", "≤ 2", "ok"],
    ]


def test_the_page_keeps_everything_but_its_block() -> None:
    page = with_figures(PAGE, [results()])

    assert page.startswith("# Benchmarks\n")
    assert page.endswith("<!-- figures: end -->\n\n## Profiles\n")
    assert "old" not in page
    assert "| control | lines/s | 20,000 lines/s | 10,000–30,000 | ≥ 25,000 | missed |" in page
    assert "`engine` came to no end" in page
    assert with_figures(page, [results()]) == page


def test_a_page_without_a_block_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no block"):
        with_figures("# Benchmarks\n", [results()])


def test_the_documentation_has_the_block() -> None:
    page = Path(__file__).parents[3] / "docs" / "benchmarks.md"

    assert with_figures(page.read_text(), [results()])


def test_a_busy_machine_is_warned_of() -> None:
    assert warnings(MACHINE) == []
    assert len(warnings(MACHINE | {"load_average_at_start": 1.5})) == 1
    assert len(warnings(MACHINE | {"load_average_at_start": 1.5, "busy_percent_at_start": 60.0})) == 2


def test_a_folder_is_on_the_nearest_mount() -> None:
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmpfoo xfs rw 0 0\n"

    assert filesystem_of(Path("/tmp/bench"), mounts) == "tmpfs"
    assert filesystem_of(Path("/tmpfo"), mounts) == "ext4"


def test_a_run_tells_speed_cost_and_the_share_of_its_end() -> None:
    run = BatchRun(
        batch_id="batch_0",
        lines=1000,
        wall_seconds=4.0,
        upload_seconds=0.1,
        download_seconds=0.1,
        planning_seconds=0.5,
        running_seconds=2.8,
        finalizing_seconds=0.5,
        cpu_seconds={"api": 0.01, "work": 0.03},
    )

    assert run.lines_per_second == 250.0
    assert run.cpu_microseconds_per_line == pytest.approx(40.0)
    assert run.finalizing_percent == 12.5


def test_benchmarks_are_chosen_by_name_and_run_in_one_order() -> None:
    assert chosen(None) == BENCHMARKS
    assert [each.name for each in chosen("idle, control")] == ["control", "idle"]


def test_a_name_that_is_no_benchmark_is_refused() -> None:
    with pytest.raises(ValueError, match="no benchmark is called speed"):
        chosen("speed,idle")
