"""What frequent checkpoints cost: the steady batch with checkpoints as shipped, and every second."""

from collections.abc import Iterator
from typing import Final

from bench.batch_run import BatchRun, run_batch
from bench.control_plane import warm_up
from bench.figures import Figure, figure, percent
from bench.scale import Run
from bench.site import running_site
from bench.steady import SLOTS, seconds_per_token
from bench.workload import SMALL_LINE_BYTES, write_requests

_OFTEN_SECONDS: Final = 1.0
_MOST_PERCENT: Final = 105.0
_WRITTEN: Final = "SELECT coalesce(sum(checkpoints), 0) FROM chunks WHERE batch_id = %(batch)s"


def measure_checkpoints(run: Run) -> Iterator[Figure]:
    """Measure the same batch on two services in turn, which differ in nothing but the interval."""
    settings = {"simulated_seconds_per_token": seconds_per_token(), "max_num_seqs": SLOTS}
    rare: list[BatchRun] = []
    often: list[BatchRun] = []
    with (
        running_site(run.folder / "rare", "--simulated", settings=settings) as shipped,
        running_site(
            run.folder / "often", "--simulated", settings=settings | {"checkpoint_seconds": _OFTEN_SECONDS}
        ) as frequent,
    ):
        ways = [(shipped, rare), (frequent, often)]
        for site, _ in ways:
            warm_up(run, site)
        requests = write_requests(run.folder / "many.jsonl", run.scale.many_lines, line_bytes=SMALL_LINE_BYTES)
        for turn in range(run.scale.rounds):
            run.say(f"checkpoints: {run.scale.many_lines:,} lines each, round {turn + 1} of {run.scale.rounds}")
            for site, runs in ways if turn % 2 == 0 else ways[::-1]:
                runs.append(run_batch(site, requests, run.scale.many_lines))
        frequent.audit(often[-1].batch_id)
        written = [float(frequent.query(_WRITTEN, batch=each.batch_id)[0][0]) for each in often]
    yield figure("checkpoints a batch, every second", written, "")
    yield figure("server CPU per line, as shipped", [each.cpu_microseconds_per_line for each in rare], "µs")
    yield figure("server CPU per line, every second", [each.cpu_microseconds_per_line for each in often], "µs")
    pairs = list(zip(often, rare, strict=True))
    cpu = [percent(one.cpu_microseconds_per_line, other.cpu_microseconds_per_line) for one, other in pairs]
    yield figure("CPU every second, of that as shipped", cpu, "%", most=_MOST_PERCENT)
    wall = [percent(one.wall_seconds, other.wall_seconds) for one, other in pairs]
    yield figure("wall every second, of that as shipped", wall, "%", most=_MOST_PERCENT)
