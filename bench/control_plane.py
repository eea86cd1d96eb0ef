"""The control plane alone: batches through ``slackwater up`` with the simulated engine in the worker's process."""

from collections.abc import Iterator, Mapping
from typing import Final

from bench.batch_run import BatchRun, cpu_figures, phase_figures, run_batch
from bench.figures import Figure, figure
from bench.scale import Run
from bench.site import Site, running_site
from bench.workload import SMALL_LINE_BYTES, write_requests

LEAST_LINES_PER_SECOND: Final = 25_000.0
MOST_CPU_MICROSECONDS: Final = 45.0
MOST_MEGABYTES: Final = 150.0
MOST_GROWTH_PERCENT: Final = 120.0
_MOST_FINALIZING_PERCENT: Final = 12.0
_MEASURED_ROLES: Final = ("api", "control", "work")


def measure_in_process(run: Run) -> Iterator[Figure]:
    """Measure one batch at full speed, several times, and the memory of a small and a large one."""
    with running_site(run.folder / "site", "--simulated") as site:
        warm_up(run, site)
        few = peaks_of(run, site, run.scale.few_lines)
        requests = write_requests(run.folder / "many.jsonl", run.scale.many_lines, line_bytes=SMALL_LINE_BYTES)
        site.reset_peaks()
        runs = []
        for turn in range(run.scale.rounds):
            run.say(f"control: {run.scale.many_lines:,} lines, round {turn + 1} of {run.scale.rounds}")
            runs.append(run_batch(site, requests, run.scale.many_lines))
        many = site.peak_megabytes()
        run.say("control: auditing the last batch")
        site.audit(runs[-1].batch_id)
    yield from speed_figures(runs)
    yield from memory_figures(few, run.scale.few_lines, many, run.scale.many_lines)


def measure_million(run: Run) -> Iterator[Figure]:
    """Measure one very large batch once, beside one that is not, in one service."""
    if not run.scale.with_most_lines:
        return
    with running_site(run.folder / "site", "--simulated") as site:
        warm_up(run, site)
        few = peaks_of(run, site, run.scale.few_lines)
        requests = write_requests(run.folder / "many.jsonl", run.scale.many_lines, line_bytes=SMALL_LINE_BYTES)
        beside = run_batch(site, requests, run.scale.many_lines)
        run.say(f"million: writing {run.scale.most_lines:,} lines")
        requests = write_requests(run.folder / "most.jsonl", run.scale.most_lines, line_bytes=SMALL_LINE_BYTES)
        site.reset_peaks()
        run.say(f"million: {run.scale.most_lines:,} lines")
        large = run_batch(site, requests, run.scale.most_lines)
        most = site.peak_megabytes()
        run.say("million: auditing every line")
        site.audit(large.batch_id)
    yield from speed_figures([large])
    share = 100.0 * large.lines_per_second / beside.lines_per_second
    yield figure(f"speed, of that of {beside.lines:,} lines", [share], "%", least=80.0)
    yield from memory_figures(few, run.scale.few_lines, most, run.scale.most_lines)


def warm_up(run: Run, site: Site) -> None:
    """Run a batch that is not measured, so that the speed of the engine is known and planning cuts by it."""
    run.say(f"warming up with {run.scale.warm_up_lines:,} lines")
    path = write_requests(run.folder / "warm.jsonl", run.scale.warm_up_lines, line_bytes=SMALL_LINE_BYTES)
    run_batch(site, path, run.scale.warm_up_lines)


def peaks_of(run: Run, site: Site, lines: int) -> dict[str, float]:
    """Run one batch of so many lines and return the peak memory by role."""
    path = write_requests(run.folder / f"{lines}.jsonl", lines, line_bytes=SMALL_LINE_BYTES)
    site.reset_peaks()
    run_batch(site, path, lines)
    return site.peak_megabytes()


def speed_figures(runs: list[BatchRun]) -> Iterator[Figure]:
    """Report equal runs at full speed."""
    yield figure("lines/s", [run.lines_per_second for run in runs], "lines/s", least=LEAST_LINES_PER_SECOND)
    cpu = [run.cpu_microseconds_per_line for run in runs]
    yield figure("server CPU per line", cpu, "µs", most=MOST_CPU_MICROSECONDS)
    yield figure("finalizing, of wall", [run.finalizing_percent for run in runs], "%", most=_MOST_FINALIZING_PERCENT)
    yield from cpu_figures(runs)
    yield from phase_figures(runs)


def memory_figures(
    few: Mapping[str, float], few_lines: int, many: Mapping[str, float], many_lines: int
) -> Iterator[Figure]:
    """Report peak memory by role at two sizes, and how much the larger takes of the smaller."""
    for role in _MEASURED_ROLES:
        yield figure(f"peak RSS: {role}, {few_lines:,} lines", [few[role]], "MB", most=MOST_MEGABYTES)
        yield figure(f"peak RSS: {role}, {many_lines:,} lines", [many[role]], "MB", most=MOST_MEGABYTES)
        growth = 100.0 * many[role] / few[role]
        yield figure(f"peak RSS: {role}, the latter of the former", [growth], "%", most=MOST_GROWTH_PERCENT)
    yield figure(f"PSS after: postgres, {many_lines:,} lines", [many["postgres"]], "MB")
