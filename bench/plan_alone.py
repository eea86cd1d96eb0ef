"""Planning alone: lines a second by line length and kind of store, and the memory of a very large plan."""

import contextlib
import dataclasses
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.control_plane import MOST_GROWTH_PERCENT, MOST_MEGABYTES
from bench.figures import MEGABYTE, Figure, figure
from bench.plan_program import Order, Spent
from bench.programs import run_json
from bench.s3_server import seaweedfs
from bench.scale import Run
from bench.workload import LARGE_LINE_BYTES, SMALL_LINE_BYTES, write_requests
from slackwater.db.migrate import migrate
from slackwater.embedded.postgres import EmbeddedPostgres

_LEAST_LINES_PER_SECOND: Final = {SMALL_LINE_BYTES: 130_000.0, LARGE_LINE_BYTES: 45_000.0}
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Store:
    """An object store to plan from and into."""

    name: str
    url: str
    settings: dict[str, Any]


def measure_planning(run: Run) -> Iterator[Figure]:
    """Measure each kind of input on each kind of store, in turns."""
    lines, rounds = run.scale.many_lines, run.scale.rounds
    with _database(run.folder) as database_url, seaweedfs(run.folder) as s3:
        stores = [_local(run), _Store(name="S3", url=s3.new_url(), settings=dataclasses.asdict(s3.settings()))]
        spent: dict[tuple[int, str], list[Spent]] = {}
        for line_bytes in (SMALL_LINE_BYTES, LARGE_LINE_BYTES):
            requests = write_requests(run.folder / "many.jsonl", lines, line_bytes=line_bytes)
            for turn in range(rounds):
                for store in stores:
                    run.say(f"planning: {lines:,} lines of {line_bytes} bytes, {store.name}, {turn + 1} of {rounds}")
                    # The first round warms up: the process, its connections and the store's caches.
                    planned = _plan(run, database_url, store, requests, lines, rounds=2)
                    spent.setdefault((line_bytes, store.name), []).append(planned[-1])
        for (line_bytes, name), each in spent.items():
            yield from _speed(line_bytes, name, each, lines)
        yield from _memory(run, database_url, stores[0])


def _speed(line_bytes: int, store: str, spent: list[Spent], lines: int) -> Iterator[Figure]:
    """Report one kind of input. Targets hold for the local store: the S3 server shares this machine's cores."""
    what = f"{line_bytes} bytes, {store}"
    least = _LEAST_LINES_PER_SECOND[line_bytes] if store == "local" else None
    yield figure(f"lines/s: {what}", [lines / each.wall_seconds for each in spent], "lines/s", least=least)
    yield figure(f"CPU per line: {what}", [each.cpu_seconds / lines * _MICROSECONDS for each in spent], "µs")


def _memory(run: Run, database_url: str, store: _Store) -> Iterator[Figure]:
    """Report the memory of a small and of a very large plan, each in a process of its own."""
    peaks = []
    for lines in (run.scale.few_lines, run.scale.most_lines):
        run.say(f"planning: memory at {lines:,} lines")
        requests = write_requests(run.folder / "most.jsonl", lines, line_bytes=SMALL_LINE_BYTES)
        peaks.append(_plan(run, database_url, store, requests, lines, rounds=1)[0].peak_bytes / MEGABYTE)
        yield figure(f"peak RSS: {lines:,} lines", [peaks[-1]], "MB", most=MOST_MEGABYTES)
    yield figure("peak RSS: the latter of the former", [100.0 * peaks[1] / peaks[0]], "%", most=MOST_GROWTH_PERCENT)


def _plan(run: Run, database_url: str, store: _Store, requests: Path, lines: int, *, rounds: int) -> list[Spent]:
    scratch = run.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    order = Order(
        database_url=database_url,
        store_url=store.url,
        store=store.settings,
        requests=str(requests),
        lines=lines,
        rounds=rounds,
        scratch=str(scratch),
    )
    printed = run_json([sys.executable, "-m", "bench.plan_program"], said=msgspec.json.encode(order).decode())
    return msgspec.convert(printed, type=list[Spent])


def _local(run: Run) -> _Store:
    return _Store(name="local", url=(run.folder / "objects").as_uri(), settings={})


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL of our own, as ``slackwater up`` does, and yield its URL."""
    with EmbeddedPostgres(folder / "postgres", token=secrets.token_urlsafe(32)) as server:
        migrate(server.url)
        yield server.url
