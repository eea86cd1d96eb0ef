"""``python -m tests.soak.recovery``: how fast a busy service gets over each death, at the settings it ships with.

Three workers run one long batch. Each round kills a worker for good, ends one gently, kills the leader, freezes it,
restarts PostgreSQL and kills it, and waits each time until the service has got over it. Then a batch of chunks as long
as a known speed cuts them shows what a worker's death costs in inference that runs again.
"""

import json
import random
import signal
import sys
import tempfile
import time
import uuid
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.table import Table

from slackwater.client.multipart_body import source_of_stream
from slackwater.client.sync_client import Client
from tests.soak.engine import read_record
from tests.soak.lines import ENDPOINTS, Mixture, write_lines
from tests.soak.schedule import WORKERS
from tests.soak.site import SLOTS, Site, running_site
from tests.soak.watch import Watch

_RESULTS: Final = Path(__file__).resolve().parents[2] / "bench" / "results"
_SECONDS_PER_TOKEN: Final = 0.05
_MANY_LINES: Final = 40_000
_WARM_LINES: Final = 400
_LONG_LINES: Final = 9_000
_GONE_SECONDS: Final = 600.0
"""A worker that is dead for good: the supervisor does not start it again meanwhile."""
_FROZEN_SECONDS: Final = 15.0
_CHECKPOINT_SECONDS: Final = 30.0
_BOUND_SECONDS: Final = 180.0
_GRACE_SECONDS: Final = 30.0
_SINCE_TOLD: Final = "the same since it was told, requests that were running included"
_TARGETS: Final = {
    "dead worker's chunks run again": 40.0,
    "stopped worker's chunks run again": 2.0,
    _SINCE_TOLD: _GRACE_SECONDS,
    "leader killed: a new one": 5.0,
    "leader frozen: a new one": 5.0,
    "PostgreSQL restarted: first commit": 10.0,
    "PostgreSQL killed: first commit": 10.0,
    "inference that runs again, a slot": _CHECKPOINT_SECONDS,
}
_BUSY: Final = "SELECT count(DISTINCT worker_id) FROM chunks WHERE state = 'leased'"
_HELD_LONG: Final = """
    SELECT c.seq FROM chunks c JOIN workers w ON w.id = c.worker_id
    WHERE c.batch_id = %s AND c.worker_id = %s AND c.state = 'leased' AND c.leased_at < now() - interval '40 seconds'"""
_OPEN: Final = "SELECT count(*) FROM chunks WHERE batch_id = %s AND seq = ANY (%s) AND state <> 'done'"
_FAILED: Final = "SELECT count(*) FROM batches WHERE status = 'failed'"

Samples = defaultdict[str, list[float]]


def measure(site: Site, watch: Watch, rounds: int, say: Callable[[str], object]) -> Samples:
    """Do everything ``rounds`` times; returns seconds by figure."""
    samples: Samples = defaultdict(list)
    with _client(site) as client:
        batch = _submit(client, "many", _MANY_LINES)
        for turn in range(rounds):
            for name, fault in _Faults(site=site, watch=watch, worker=turn % WORKERS).in_order():
                _until(site, lambda: site.all_alive() and _ask(site, _BUSY)[0][0] == WORKERS)
                say(f"round {turn + 1} of {rounds}: {name}")
                fault(name)
                _until(site, lambda: watch.idle)
                _bring_back(site)
        client.cancel_batch(batch)
        samples.update(watch.seconds)
        samples["inference that runs again, a slot"] = _runs_again(site, client, rounds, say)
    assert _ask(site, _FAILED)[0][0] == 0, "a batch failed"
    return samples


@dataclass(frozen=True, kw_only=True, slots=True)
class _Faults:
    """What befalls a site in one round."""

    site: Site
    watch: Watch
    worker: int
    """Which one is killed; the next one is stopped."""

    def in_order(self) -> Iterator[tuple[str, Callable[[str], None]]]:
        """Yield each with the figure that it is measured by."""
        dead, stopped, _, killed_leader, frozen_leader, restarted, killed_database, _ = _TARGETS
        yield dead, self._kill_worker
        yield stopped, self._stop_worker
        yield killed_leader, self._kill_leader
        yield frozen_leader, self._freeze_leader
        yield restarted, partial(self._restart, self.site.postgres.stop)
        yield killed_database, partial(self._restart, self.site.postgres.kill)

    def _kill_worker(self, figure: str) -> None:
        name = f"work-{self.worker}"
        self.watch.leases_of(name, figure)
        self.site.end_role(name, signal.SIGKILL, down_seconds=_GONE_SECONDS)

    def _stop_worker(self, figure: str) -> None:
        """Measure from its end: how long it lets requests end is the grace's affair, and a figure of its own."""
        name = f"work-{(self.worker + 1) % WORKERS}"
        told = time.monotonic()
        self.watch.leases_of(name, _SINCE_TOLD)
        self.site.end_role(name, signal.SIGTERM, down_seconds=_GONE_SECONDS)
        _until(self.site, lambda: self.site.roles.children[name].poll() is not None)
        ended = time.monotonic()
        _until(self.site, lambda: self.watch.idle)
        self.watch.seconds[figure] += [max(0.0, told + took - ended) for took in self.watch.seconds[_SINCE_TOLD][-1:]]

    def _kill_leader(self, figure: str) -> None:
        leader = self.site.leader()
        self.watch.new_leader(figure)
        self.site.end_role(leader, signal.SIGKILL, down_seconds=_FROZEN_SECONDS)

    def _freeze_leader(self, figure: str) -> None:
        leader = self.site.leader()
        self.watch.new_leader(figure)
        self.site.signal_role(leader, signal.SIGSTOP)
        end = time.monotonic() + _FROZEN_SECONDS
        _until(self.site, lambda: time.monotonic() > end)
        self.site.signal_role(leader, signal.SIGCONT)

    def _restart(self, end: Callable[[], None], figure: str) -> None:
        end()
        self.site.postgres.start()
        self.watch.next_commit(figure)


def _runs_again(site: Site, client: Client, rounds: int, say: Callable[[str], object]) -> list[float]:
    """Kill a worker in the midst of long chunks and add up the inference that was done twice, in seconds a slot."""
    warm = _submit(client, "warm", _WARM_LINES)
    _until(site, lambda: client.get_batch(warm).ended)
    found = []
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: a worker dies in the midst of a long chunk")
        found.append(_dies_in_midst(site, client, _submit(client, f"long{turn}", _LONG_LINES), turn % WORKERS))
        _bring_back(site)
    return found


def _dies_in_midst(site: Site, client: Client, batch: str, worker: int) -> float:
    """Kill one worker that runs long chunks of a batch; returns the seconds of inference, a slot, done twice for it."""
    name = f"work-{worker}"
    _until(site, lambda: _ask(site, _HELD_LONG, batch, name))
    chunks = [seq for (seq,) in _ask(site, _HELD_LONG, batch, name)]
    died = time.monotonic()
    site.end_role(name, signal.SIGKILL, down_seconds=_GONE_SECONDS)
    _until(site, lambda: not _ask(site, _OPEN, batch, chunks)[0][0])
    wasted_seconds = _wasted_seconds(site, worker, died)
    client.cancel_batch(batch)
    _until(site, lambda: client.get_batch(batch).ended)
    return wasted_seconds / SLOTS


def _wasted_seconds(site: Site, worker: int, died: float) -> float:
    """Add up the inference that one engine had done by then of lines that ran again later."""
    later = {taken.digest for engine in site.engines for taken in read_record(engine.record) if taken.at_seconds > died}
    before = (taken for taken in read_record(site.engines[worker].record) if taken.at_seconds <= died)
    return sum(min(died - taken.at_seconds, taken.inference_seconds) for taken in before if taken.digest in later)


@contextmanager
def _client(site: Site) -> Iterator[Client]:
    key = next(iter(site.keys.values()))
    with Client(
        base_url=site.roles.base_url, api_key=key, new_key=lambda: uuid.uuid4().hex, jitter=random.random, max_retries=9
    ) as client:
        yield client


def _submit(client: Client, name: str, lines: int) -> str:
    data, _ = write_lines(name, ENDPOINTS[0], Mixture(total=lines), seed=1)
    file = client.create_file(source_of_stream(BytesIO(data), filename=f"{name}.jsonl"))
    return client.create_batch(input_file_id=file.id, endpoint=ENDPOINTS[0]).id


def _ask(site: Site, question: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(site.postgres.url) as connection:
        return connection.execute(question.encode(), values).fetchall()


def _until(site: Site, reached: Callable[[], object]) -> None:
    """Look after the site until something is so. Raises TimeoutError after three minutes."""
    end = time.monotonic() + _BOUND_SECONDS
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError("the service does not get over it")
        site.tend()
        time.sleep(0.05)


def _bring_back(site: Site) -> None:
    """Start again what was meant to be gone."""
    site.end_absences()
    site.tend()


def _table(samples: Samples) -> Table:
    table = Table(title="Recovery", title_justify="left")
    for name in ("figure", "rounds", "median", "least", "most", "target", ""):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, target in _TARGETS.items():
        seconds = sorted(samples[name])
        if not seconds:
            table.add_row(name, "0", "", "", "", f"≤ {target:.0f} s", "missed", style="red")
            continue
        cells = [f"{value:.1f} s" for value in (seconds[len(seconds) // 2], seconds[0], seconds[-1])]
        verdict = "ok" if seconds[-1] <= target else "missed"
        table.add_row(name, str(len(seconds)), *cells, f"≤ {target:.0f} s", verdict)
    return table


def main() -> int:
    """Measure, print a table, write JSON; returns 1 where a target was missed."""
    parser = ArgumentParser(prog="python -m tests.soak.recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=_RESULTS, help="folder for the JSON")
    given = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    folder = Path(tempfile.mkdtemp(prefix="slackwater-recovery-"))
    console.print(f"measuring in {folder}")
    with running_site(folder, seconds_per_token=_SECONDS_PER_TOKEN, settings={}, say=console.print) as site:
        watch = Watch(site.postgres.url)
        with watch.looking():
            samples = measure(site, watch, given.rounds, console.print)
    console.print(_table(samples))
    given.results.mkdir(parents=True, exist_ok=True)
    written = given.results / "recovery.json"
    written.write_text(json.dumps({"targets": _TARGETS, "seconds": samples}, indent=2) + "\n")
    console.print(f"written to {written}", soft_wrap=True)
    return int(any(not samples[name] or max(samples[name]) > target for name, target in _TARGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
