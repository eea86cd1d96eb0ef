"""The control plane at the pace of a thousand million lines a day, which an engine sets that takes its time."""

from collections.abc import Iterator
from typing import Final

from bench.batch_run import run_batch
from bench.control_plane import warm_up
from bench.figures import Figure, figure
from bench.scale import Run
from bench.site import running_site
from bench.workload import PATH, SMALL_LINE_BYTES, request_line, write_requests
from slackwater.domain.request_lines import request_lines
from slackwater.inference.simulated_writer import Answer, SimulatedModel, Writer

LINES_PER_SECOND: Final = 11_574.0
_MOST_FINALIZING_PERCENT: Final = 5.0
SLOTS: Final = 256
_SAMPLED_LINES: Final = 2000


def measure_steady(run: Run) -> Iterator[Figure]:
    """Measure batches whose lines run at about that pace; the pace they had is the first figure."""
    settings = {"simulated_seconds_per_token": seconds_per_token(), "max_num_seqs": SLOTS}
    with running_site(run.folder / "site", "--simulated", settings=settings) as site:
        warm_up(run, site)
        requests = write_requests(run.folder / "many.jsonl", run.scale.many_lines, line_bytes=SMALL_LINE_BYTES)
        runs = []
        for turn in range(run.scale.rounds):
            run.say(f"steady: {run.scale.many_lines:,} lines, round {turn + 1} of {run.scale.rounds}")
            runs.append(run_batch(site, requests, run.scale.many_lines))
        site.audit(runs[-1].batch_id)
    yield figure("lines/s while lines run", [run.lines / run.running_seconds for run in runs], "lines/s")
    finalizing = [run.finalizing_percent for run in runs]
    yield figure("finalizing, of wall", finalizing, "%", most=_MOST_FINALIZING_PERCENT)
    yield figure("server CPU per line", [run.cpu_microseconds_per_line for run in runs], "µs")


def seconds_per_token() -> float:
    """Return how long the engine must take for a token so that its slots together keep the pace."""
    writer = Writer(SimulatedModel())
    lengths = []
    for number in range(_SAMPLED_LINES):
        line = request_line(number, line_bytes=SMALL_LINE_BYTES)
        answer = writer.answer(PATH, bytes(request_lines(line, at_start=True)[0].body))
        assert isinstance(answer, Answer)
        lengths.append(answer.output_tokens)
    return SLOTS / (LINES_PER_SECOND * sum(lengths) / len(lengths))
