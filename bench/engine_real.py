"""A real engine: the same requests on vLLM through the service, through a bare client, and in vLLM's own two ways."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.batch_run import run_batch
from bench.engine_offline import OUTPUT_TOKENS, SEQUENCES
from bench.figures import Figure, figure, pairwise_percent
from bench.programs import bare_client
from bench.scale import Run
from bench.site import Failed, Site, running_site
from bench.vllm_programs import MODEL_NAME, find_python, make_tiny_model, offline, vllm_server
from bench.workload import write_engine_requests

_LEAST_SHARE_PERCENT: Final = 95.0
_LEAST_REQUESTS_PER_SECOND: Final = 5.0
"""A real engine on a busy CPU is slower than anything else that is measured."""
_STATIC_SIZE: Final = 32
_STATIC_FACTOR: Final = 5
_SERVICE: Final = "through the service"
_BARE: Final = "bare client"
_RUN_BATCH: Final = "vLLM's run_batch"
_GENERATE: Final = "LLM.generate"
_STATIC: Final = f"static batches of {_STATIC_SIZE}"
_ALONE: Final = "one at a time"
_LEASED: Final = """
    SELECT extract(epoch FROM max(committed_at) - min(leased_at)) FROM chunks WHERE batch_id = %(batch_id)s"""

Way = Callable[[Path, int], float]
"""Answers a batch input of so many requests; returns the seconds from the first request to the last answer."""


def measure_engine(run: Run) -> Iterator[Figure]:
    """Measure every way in turns, each begun by another one, all warm."""
    python = find_python(run.checkout)
    if python is None:
        raise Failed("no engine is installed: run `make engine`")
    run.say("engine: loading vLLM three times")
    model = make_tiny_model(python, run.folder / "model")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(vllm_server(python, model, run.folder / "server.log"))
        settings = {"max_num_seqs": SEQUENCES, "max_in_flight": SEQUENCES}
        site = stack.enter_context(running_site(run.folder / "site", "--engine", url, settings=settings))
        run_batch_way = stack.enter_context(offline(python, "run_batch", model, run.folder / "run_batch.log"))
        generate_way = stack.enter_context(offline(python, "generate", model, run.folder / "generate.log"))
        ways: dict[str, Way] = {
            _SERVICE: lambda path, count: _through_service(site, path, count),
            _BARE: lambda path, _: bare_client(url, path, in_flight=SEQUENCES)["wall_seconds"],
            _RUN_BATCH: lambda path, count: run_batch_way.seconds(path, count, count * OUTPUT_TOKENS),
            _GENERATE: lambda path, count: generate_way.seconds(path, count, count * OUTPUT_TOKENS),
            _STATIC: lambda path, _: bare_client(url, path, in_flight=_STATIC_SIZE, static=True)["wall_seconds"],
            _ALONE: lambda path, _: bare_client(url, path, in_flight=1)["wall_seconds"],
        }
        rates = _measure(run, ways)
        yield from _figures(rates)


def _measure(run: Run, ways: dict[str, Way]) -> dict[str, list[float]]:
    """Return requests a second by way, one a round."""
    alone = run.scale.engine_requests_alone
    counts = dict.fromkeys(ways, run.scale.engine_requests) | {_ALONE: alone, _STATIC: alone * _STATIC_FACTOR}
    paths = {
        count: write_engine_requests(run.folder / f"{count}.jsonl", count, model=MODEL_NAME)
        for count in set(counts.values())
    }
    for name, way in ways.items():
        run.say(f"engine: warming up, {name}")
        way(paths[alone], alone)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(run.scale.engine_rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            run.say(f"engine: {counts[name]:,} requests, round {turn + 1} of {run.scale.engine_rounds}: {name}")
            rates[name].append(counts[name] / ways[name](paths[counts[name]], counts[name]))
    return rates


def _through_service(site: Site, path: Path, count: int) -> float:
    """Run a batch; returns the time from the first lease to the last commit, which holds every request's."""
    ended = run_batch(site, path, count, least_per_second=_LEAST_REQUESTS_PER_SECOND)
    site.audit(ended.batch_id)
    return float(site.query(_LEASED, batch_id=ended.batch_id)[0][0])


def _figures(rates: dict[str, list[float]]) -> Iterator[Figure]:
    for name, samples in rates.items():
        yield figure(name, samples, "requests/s")
    for name, samples in rates.items():
        if name != _BARE:
            least = _LEAST_SHARE_PERCENT if name == _SERVICE else None
            shares = pairwise_percent(samples, rates[_BARE])
            yield figure(f"{name}, of the bare client", shares, "%", least=least)
