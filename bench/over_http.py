"""The control plane over HTTP: the service on a simulated server, and a bare client on the same server, in turns."""

from collections.abc import Iterator
from typing import Final

from bench.batch_run import cpu_figures, phase_figures, run_batch
from bench.control_plane import warm_up
from bench.figures import Figure, figure, pairwise_percent
from bench.programs import bare_client, simulated_server
from bench.scale import Run
from bench.site import running_site
from bench.workload import SMALL_LINE_BYTES, write_requests

IN_FLIGHT: Final = 256
_LEAST_LINES_PER_SECOND: Final = 6500.0
_LEAST_SHARE_PERCENT: Final = 80.0
_MICROSECONDS: Final = 1e6


def measure_over_http(run: Run) -> Iterator[Figure]:
    """Measure both with as many requests in flight, each alone at its turn."""
    lines = run.scale.many_lines
    requests = write_requests(run.folder / "many.jsonl", lines, line_bytes=SMALL_LINE_BYTES)
    settings = {"max_num_seqs": IN_FLIGHT, "max_in_flight": IN_FLIGHT}
    runs, bare, bare_cpu, served_cpu, served_bare_cpu = [], [], [], [], []
    with (
        simulated_server(slots=IN_FLIGHT, log=run.folder / "server.log") as engine,
        running_site(run.folder / "site", "--engine", engine.url, settings=settings) as site,
    ):
        warm_up(run, site)
        for turn in range(run.scale.rounds):
            run.say(f"http: {lines:,} lines, round {turn + 1} of {run.scale.rounds}: bare client")
            before = engine.cpu_seconds()
            spent = bare_client(engine.url, requests, in_flight=IN_FLIGHT)
            bare.append(lines / spent["wall_seconds"])
            bare_cpu.append(spent["cpu_seconds"] / lines * _MICROSECONDS)
            between = engine.cpu_seconds()
            served_bare_cpu.append((between - before) / lines * _MICROSECONDS)
            run.say(f"http: {lines:,} lines, round {turn + 1} of {run.scale.rounds}: service")
            runs.append(run_batch(site, requests, lines))
            served_cpu.append((engine.cpu_seconds() - between) / lines * _MICROSECONDS)
        site.audit(runs[-1].batch_id)
    whole = [each.lines_per_second for each in runs]
    yield figure("lines/s, upload to results", whole, "lines/s", least=_LEAST_LINES_PER_SECOND)
    yield figure("bare aiohttp client", bare, "requests/s")
    yield figure("service, of the bare client", pairwise_percent(whole, bare), "%", least=_LEAST_SHARE_PERCENT)
    running = [each.lines / each.running_seconds for each in runs]
    yield figure("lines/s while lines run", running, "lines/s")
    yield figure("the same, of the bare client", pairwise_percent(running, bare), "%")
    yield figure("server CPU per line", [each.cpu_microseconds_per_line for each in runs], "µs")
    yield figure("bare client's CPU per request", bare_cpu, "µs")
    yield figure("engine's CPU per line of the service", served_cpu, "µs")
    yield figure("engine's CPU per request of the bare client", served_bare_cpu, "µs")
    yield from cpu_figures(runs)
    yield from phase_figures(runs)
