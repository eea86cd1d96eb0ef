"""The control plane over HTTP: the service on a simulated server, and a bare client on the same server, in turns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.batch_run import BatchRun, cpu_figures, phase_figures, run_batch
from bench.control_plane import warm_up
from bench.figures import Figure, figure, pairwise_percent
from bench.programs import Engine, bare_client, simulated_server
from bench.scale import Run
from bench.site import Site, running_site
from bench.workload import SMALL_LINE_BYTES, write_requests

IN_FLIGHT: Final = 256
_LEAST_LINES_PER_SECOND: Final = 6500.0
_LEAST_SHARE_PERCENT: Final = 80.0
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Round:
    """One turn of each. CPU times are microseconds a request."""

    service: BatchRun
    engine_cpu: float
    bare_per_second: float
    bare_cpu: float
    engine_cpu_bare: float


def measure_over_http(run: Run) -> Iterator[Figure]:
    """Measure both with as many requests in flight, each alone at its turn."""
    requests = write_requests(run.folder / "many.jsonl", run.scale.many_lines, line_bytes=SMALL_LINE_BYTES)
    settings = {"max_num_seqs": IN_FLIGHT, "max_in_flight": IN_FLIGHT}
    rounds = []
    with (
        simulated_server(slots=IN_FLIGHT, log=run.folder / "server.log") as engine,
        running_site(run.folder / "site", "--engine", engine.url, settings=settings) as site,
    ):
        warm_up(run, site)
        for turn in range(run.scale.rounds):
            run.say(f"http: {run.scale.many_lines:,} lines each, round {turn + 1} of {run.scale.rounds}")
            rounds.append(_take_turns(site, engine, requests, run.scale.many_lines))
        site.audit(rounds[-1].service.batch_id)
    yield from _figures(rounds)


def _take_turns(site: Site, engine: Engine, requests: Path, lines: int) -> _Round:
    each = _MICROSECONDS / lines
    before = engine.cpu_seconds()
    spent = bare_client(engine.url, requests, in_flight=IN_FLIGHT)
    between = engine.cpu_seconds()
    service = run_batch(site, requests, lines)
    return _Round(
        service=service,
        engine_cpu=(engine.cpu_seconds() - between) * each,
        bare_per_second=lines / spent["wall_seconds"],
        bare_cpu=spent["cpu_seconds"] * each,
        engine_cpu_bare=(between - before) * each,
    )


def _figures(rounds: Sequence[_Round]) -> Iterator[Figure]:
    runs = [each.service for each in rounds]
    whole = [each.lines_per_second for each in runs]
    running = [each.lines / each.running_seconds for each in runs]
    bare = [each.bare_per_second for each in rounds]
    yield figure("lines/s, upload to results", whole, "lines/s", least=_LEAST_LINES_PER_SECOND)
    yield figure("bare aiohttp client", bare, "requests/s")
    yield figure("service, of the bare client", pairwise_percent(whole, bare), "%", least=_LEAST_SHARE_PERCENT)
    yield figure("lines/s while lines run", running, "lines/s")
    yield figure("the same, of the bare client", pairwise_percent(running, bare), "%")
    yield figure("server CPU per line", [each.cpu_microseconds_per_line for each in runs], "µs")
    yield figure("bare client's CPU per request", [each.bare_cpu for each in rounds], "µs")
    yield figure("engine's CPU per line of the service", [each.engine_cpu for each in rounds], "µs")
    yield figure("engine's CPU per request of the bare client", [each.engine_cpu_bare for each in rounds], "µs")
    yield from cpu_figures(runs)
    yield from phase_figures(runs)
