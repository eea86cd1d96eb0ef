"""Every benchmark by name, in the order in which they run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bench.checkpoints import measure_checkpoints
from bench.control_plane import measure_in_process, measure_million
from bench.engine_real import measure_engine
from bench.figures import Figure
from bench.over_http import measure_over_http
from bench.plan_alone import measure_planning
from bench.scale import Run
from bench.small_batches import measure_idle, measure_small
from bench.steady import measure_steady
from bench.uploads import measure_uploads


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One subject and how it is measured."""

    name: str
    subject: str
    measure: Callable[[Run], Iterator[Figure]]
    """Yields its figures; none where the run's scale leaves it out."""
    full_only: bool = False


BENCHMARKS: Final = (
    Benchmark(
        name="control", subject="one batch, simulated engine in the worker's process", measure=measure_in_process
    ),
    Benchmark(name="http", subject="the same over HTTP, beside a bare aiohttp client", measure=measure_over_http),
    Benchmark(name="steady", subject="one batch at 11,574 lines/s: a thousand million a day", measure=measure_steady),
    Benchmark(name="checkpoints", subject="the same, with checkpoints every second", measure=measure_checkpoints),
    Benchmark(name="million", subject="one batch of a million lines, once", measure=measure_million, full_only=True),
    Benchmark(name="small", subject="a thousand batches of ten lines, eight customers", measure=measure_small),
    Benchmark(name="idle", subject="one request on an idle service", measure=measure_idle),
    Benchmark(name="planning", subject="planning alone, local store and S3", measure=measure_planning),
    Benchmark(name="upload", subject="uploads of 200 MB", measure=measure_uploads),
    Benchmark(name="engine", subject="vLLM on a tiny model: service, bare client, vLLM's own", measure=measure_engine),
)


def chosen(names: str | None) -> tuple[Benchmark, ...]:
    """Return the benchmarks of a comma-separated list of names, in the catalogue's order; all for None.

    Raises ValueError for a name that is none.
    """
    if names is None:
        return BENCHMARKS
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {each.name for each in BENCHMARKS}
    if unknown:
        known = ", ".join(each.name for each in BENCHMARKS)
        raise ValueError(f"no benchmark is called {', '.join(sorted(unknown))}; there are {known}")
    return tuple(each for each in BENCHMARKS if each.name in wanted)
