"""One batch from the start of its upload to its downloaded results, with what it cost the service."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import proc
from bench.customer import Customer
from bench.figures import Figure, figure, percent
from bench.site import ROLES, Failed, Site

POLL_SECONDS: Final = 0.05
_MICROSECONDS: Final = 1e6
_LEAST_LINES_PER_SECOND: Final = 50.0
"""A batch slower than that is given up: every run is bounded."""
_START_SECONDS: Final = 60.0

_PHASES: Final = """
    SELECT extract(epoch FROM in_progress_at - created_at),
           extract(epoch FROM finalizing_at - in_progress_at),
           extract(epoch FROM completed_at - finalizing_at)
      FROM batches WHERE id = %(batch_id)s"""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRun:
    """What one batch took."""

    batch_id: str
    lines: int
    wall_seconds: float
    """From the start of the upload to the last byte of the results."""
    upload_seconds: float
    download_seconds: float
    planning_seconds: float
    running_seconds: float
    finalizing_seconds: float
    cpu_seconds: Mapping[str, float]
    """By role; the client's own is not in it."""

    @property
    def lines_per_second(self) -> float:
        """Lines through the whole service in a second of wall time."""
        return self.lines / self.wall_seconds

    @property
    def cpu_microseconds_per_line(self) -> float:
        """CPU time of all roles together."""
        return sum(self.cpu_seconds.values()) / self.lines * _MICROSECONDS

    @property
    def finalizing_percent(self) -> float:
        """The part of the wall time in which the batch was finalizing."""
        return percent(self.finalizing_seconds, self.wall_seconds)


@contextlib.contextmanager
def customer_of(site: Site) -> Iterator[Customer]:
    """Connect one customer to a site while the block runs."""
    customer = Customer(site.base_url, site.api_key)
    try:
        yield customer
    finally:
        customer.close()


def run_batch(site: Site, requests: Path, lines: int, *, least_per_second: float = _LEAST_LINES_PER_SECOND) -> BatchRun:
    """Run one batch of a file with so many lines. Raises Failed unless each has exactly one result.

    Exactly one is checked by count here; the auditor looks at every line. A batch that is slower than
    ``least_per_second`` is given up, with Failed too.
    """
    with customer_of(site) as customer:
        before = site.cpu_seconds()
        began = time.perf_counter()
        file_id = customer.upload(requests)
        uploaded = time.perf_counter()
        batch_id = customer.create(file_id)["id"]
        limit = _START_SECONDS + lines / least_per_second
        ended = customer.until_completed(batch_id, poll_seconds=POLL_SECONDS, timeout_seconds=limit)
        completed = time.perf_counter()
        results = customer.download(ended["output_file_id"])
        downloaded = time.perf_counter()
        cpu = proc.difference(before, site.cpu_seconds())
    if results != lines or ended["request_counts"]["completed"] != lines:
        raise Failed(f"{lines} lines gave {results} results: {ended['request_counts']}")
    planning, running, finalizing = (float(seconds) for seconds in site.query(_PHASES, batch_id=batch_id)[0])
    return BatchRun(
        batch_id=batch_id,
        lines=lines,
        wall_seconds=downloaded - began,
        upload_seconds=uploaded - began,
        download_seconds=downloaded - completed,
        planning_seconds=planning,
        running_seconds=running,
        finalizing_seconds=finalizing,
        cpu_seconds=cpu,
    )


def phase_figures(runs: Sequence[BatchRun]) -> Iterator[Figure]:
    """Report where the wall time of equal runs went."""
    yield figure("wall: upload", [run.upload_seconds for run in runs], "s")
    yield figure("wall: created → planned", [run.planning_seconds for run in runs], "s")
    yield figure("wall: planned → all lines run", [run.running_seconds for run in runs], "s")
    yield figure("wall: finalizing", [run.finalizing_seconds for run in runs], "s")
    yield figure("wall: download", [run.download_seconds for run in runs], "s")


def cpu_figures(runs: Sequence[BatchRun]) -> Iterator[Figure]:
    """Report the CPU time of equal runs by role."""
    for role in (*ROLES, "up"):
        yield figure(f"CPU: {role}", [run.cpu_seconds.get(role, 0.0) for run in runs], "s")
