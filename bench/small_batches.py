"""Many small batches, and one request on a service that has nothing else to do."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench import proc
from bench.batch_run import customer_of
from bench.control_plane import warm_up
from bench.figures import Figure, figure, percentile
from bench.scale import Run
from bench.site import ROLES, Failed, Site, running_site
from bench.workload import SMALL_LINE_BYTES, write_requests

_CUSTOMERS: Final = 8
_LINES: Final = 10
_POLL_SECONDS: Final = 1.0
"""Between two looks at a batch: often, for customers; their SDKs' examples wait 5 to 60 s."""
_IDLE_POLL_SECONDS: Final = 0.01
_IDLE_PAUSE_SECONDS: Final = 0.7
"""Between two requests: out of step with every period of the service."""
_LIMIT_SECONDS: Final = 600.0
_MOST_CPU_MILLISECONDS: Final = 25.0
_MOST_IDLE_SECONDS: Final = 2.0
_MILLISECONDS: Final = 1e3


def measure_small(run: Run) -> Iterator[Figure]:
    """Measure ten-line batches, each uploaded, created, awaited and downloaded by one of eight customers."""
    path = write_requests(run.folder / "ten.jsonl", _LINES, line_bytes=SMALL_LINE_BYTES)
    rates, cpu, last = [], [], []
    spent: dict[str, list[float]] = {role: [] for role in ROLES}
    with running_site(run.folder / "site", "--simulated") as site:
        warm_up(run, site)
        for turn in range(run.scale.rounds):
            run.say(f"small: {run.scale.small_batches:,} batches, round {turn + 1} of {run.scale.rounds}")
            before, began = site.cpu_seconds(), time.perf_counter()
            last.append(_submit_all(site, path, run.scale.small_batches))
            rates.append(run.scale.small_batches / (time.perf_counter() - began))
            added = proc.difference(before, site.cpu_seconds())
            each = _MILLISECONDS / run.scale.small_batches
            cpu.append(sum(added.values()) * each)
            for role in ROLES:
                spent[role].append(added[role] * each)
        site.audit(last[-1])
    yield figure("batches/s", rates, "batches/s")
    yield figure("server CPU per batch", cpu, "ms", most=_MOST_CPU_MILLISECONDS)
    for role in ROLES:
        yield figure(f"CPU per batch: {role}", spent[role], "ms")


def measure_idle(run: Run) -> Iterator[Figure]:
    """Measure from creating a batch of one request to seeing it completed, each on an idle service."""
    path = write_requests(run.folder / "one.jsonl", 1, line_bytes=SMALL_LINE_BYTES)
    waits, ids = [], []
    with running_site(run.folder / "site", "--simulated") as site, customer_of(site) as customer:
        for turn in range(run.scale.idle_requests + 1):
            run.say(f"idle: request {turn} of {run.scale.idle_requests}")
            file_id = customer.upload(path)
            time.sleep(_IDLE_PAUSE_SECONDS)
            began = time.perf_counter()
            ids.append(customer.create(file_id)["id"])
            customer.until_completed(ids[-1], poll_seconds=_IDLE_POLL_SECONDS, timeout_seconds=_LIMIT_SECONDS)
            waits.append(time.perf_counter() - began)
        site.audit(ids[-1])
    # The first warms up.
    yield figure("create → completed, p50", [percentile(waits[1:], 0.5)], "s")
    yield figure("create → completed, p95", [percentile(waits[1:], 0.95)], "s", most=_MOST_IDLE_SECONDS)
    yield figure("create → completed, longest", [max(waits[1:])], "s")


def _submit_all(site: Site, path: Path, batches: int) -> str:
    """Have every customer submit its share, then await and download each of them; returns the id of one batch."""
    shares = [batches // _CUSTOMERS + (n < batches % _CUSTOMERS) for n in range(_CUSTOMERS)]
    begin = threading.Barrier(_CUSTOMERS)
    with ThreadPoolExecutor(_CUSTOMERS) as customers:
        return list(customers.map(lambda share: _submit(site, path, share, begin), shares))[-1]


def _submit(site: Site, path: Path, batches: int, begin: threading.Barrier) -> str:
    with customer_of(site) as customer:
        begin.wait()
        ids = [customer.create(customer.upload(path))["id"] for _ in range(batches)]
        for batch_id in ids:
            ended = customer.until_completed(batch_id, poll_seconds=_POLL_SECONDS, timeout_seconds=_LIMIT_SECONDS)
            if customer.download(ended["output_file_id"]) != _LINES:
                raise Failed(f"{batch_id} has not {_LINES} results")
        return str(ids[-1])
