"""The clock of one process is an hour off: leases, windows and expiry hang on the database's clock alone."""

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import openai
import psycopg
import pytest
from openai.types import Batch

from tests.processes import Processes, running
from tests.service import jsonl, line

HOUR_SECONDS: Final = 3600
LINES: Final = 60
ENDED: Final = {"completed", "failed", "expired", "cancelled"}
SHIFTED: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long skew(void) { const char *given = getenv("SKEW_SECONDS"); return given ? atol(given) : 0; }
int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, at);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) at->tv_sec += skew();
    return failed;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
"""
"""Loaded before the C library, it shifts the wall clock of a whole process, whatever reads it."""


@pytest.fixture(scope="session")
def shifted_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here, so no process can be given a clock of its own")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(SHIFTED)
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "clock.c", "-ldl"], check=True)
    return library


def start(processes: Processes, role: str, skew: dict[str, str]) -> None:
    """Start a role with a clock of its own, or without."""
    shared = processes.environment
    processes.environment = shared | skew
    try:
        processes.start(role)
    finally:
        processes.environment = shared


def until(client: openai.OpenAI, batch: Batch, *statuses: str) -> Batch:
    end = time.monotonic() + 120
    while batch.status not in {*statuses, *ENDED} and time.monotonic() < end:
        time.sleep(0.1)
        batch = client.batches.retrieve(batch.id)
    return batch


@pytest.mark.parametrize("sign", [1, -1], ids=["ahead", "behind"])
@pytest.mark.parametrize("role", ["api", "control", "work"])
def test_a_process_whose_clock_is_an_hour_off_changes_no_lease_no_window_and_no_expiry(
    database_url: str, shifted_clock: Path, tmp_path: Path, role: str, sign: int
) -> None:
    site = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_STORE_URL": f"file://{tmp_path / 'objects'}",
        "SLACKWATER_ENGINE": "simulated",
        "SLACKWATER_SIMULATED_SECONDS_PER_TOKEN": "0.02",
        "SLACKWATER_MAX_NUM_SEQS": "8",
    }
    skew = {"LD_PRELOAD": str(shifted_clock), "SKEW_SECONDS": str(sign * HOUR_SECONDS)}
    with running(site, tmp_path) as processes:
        key = processes.prepare(model="simulated")
        for name in ("api", "control", "work"):
            start(processes, name, skew if name == role else {})
        started = time.time()
        client = openai.OpenAI(base_url=processes.base_url, api_key=key)
        lines = jsonl(line(f"r{n}", f"question {n}") for n in range(LINES))
        uploaded = client.files.create(file=("in.jsonl", lines), purpose="batch")

        def create() -> Batch:
            # The shortest window there is: an hour ahead it would be over at once.
            return client.batches.create(
                input_file_id=uploaded.id,
                endpoint="/v1/chat/completions",
                completion_window="1h",  # type: ignore[arg-type]
            )

        whole = until(client, create())
        overdue = until(client, create(), "in_progress")
        with psycopg.connect(database_url) as connection:
            connection.execute("UPDATE batches SET deadline = now() WHERE id = %s", (overdue.id,))
        overdue = until(client, overdue)

        assert (whole.status, overdue.status) == ("completed", "expired")
        assert whole.completed_at is not None
        assert started - 60 < whole.created_at <= whole.completed_at < time.time() + 60
        with psycopg.connect(database_url) as connection:
            (attempts,) = connection.execute("SELECT max(attempts) FROM chunks").fetchone() or (None,)
        assert attempts == 1
        for batch in (whole, overdue):
            assert json.loads(processes.call("audit", "--json", batch.id))["sound"]
