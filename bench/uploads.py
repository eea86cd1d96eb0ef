"""Uploads: how many bytes the API takes in for a second of its CPU, and what it holds in memory meanwhile."""

from collections.abc import Iterator
from typing import Final

from bench import proc
from bench.batch_run import customer_of
from bench.figures import MEGABYTE, Figure, figure
from bench.scale import Run
from bench.site import running_site
from bench.workload import SMALL_LINE_BYTES, write_requests

_LEAST_MEGABYTES_PER_CPU_SECOND: Final = 400.0
_MOST_GROWTH_PERCENT: Final = 120.0
_FEW_MEGABYTES: Final = 10
_UPLOADS_A_ROUND: Final = 3


def measure_uploads(run: Run) -> Iterator[Figure]:
    """Measure uploads of a large file on one connection, beside the memory that a small one needs."""
    small = write_requests(run.folder / "small.jsonl", _lines(_FEW_MEGABYTES), line_bytes=SMALL_LINE_BYTES)
    large = write_requests(run.folder / "large.jsonl", _lines(run.scale.upload_megabytes), line_bytes=SMALL_LINE_BYTES)
    rates = []
    with running_site(run.folder / "site", "--simulated") as site, customer_of(site) as customer:
        for _ in range(_UPLOADS_A_ROUND):
            customer.delete(customer.upload(small))
        site.reset_peaks()
        customer.delete(customer.upload(small))
        few = site.peak_megabytes()["api"]
        site.reset_peaks()
        for turn in range(run.scale.rounds):
            run.say(f"upload: {run.scale.upload_megabytes} MB, round {turn + 1} of {run.scale.rounds}")
            before = site.cpu_seconds()
            file_ids = [customer.upload(large) for _ in range(_UPLOADS_A_ROUND)]
            cpu = proc.difference(before, site.cpu_seconds())["api"]
            rates.append(_UPLOADS_A_ROUND * large.stat().st_size / MEGABYTE / cpu)
            for file_id in file_ids:
                customer.delete(file_id)
        peak = site.peak_megabytes()["api"]
    yield figure("MB per CPU second of api", rates, "MB/s", least=_LEAST_MEGABYTES_PER_CPU_SECOND)
    yield figure(f"peak RSS: api, {_FEW_MEGABYTES} MB", [few], "MB")
    yield figure(f"peak RSS: api, {run.scale.upload_megabytes} MB", [peak], "MB")
    yield figure("peak RSS: the latter of the former", [100.0 * peak / few], "%", most=_MOST_GROWTH_PERCENT)


def _lines(megabytes: int) -> int:
    return int(megabytes * MEGABYTE) // SMALL_LINE_BYTES
