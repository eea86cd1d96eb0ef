"""``slackwater up`` as a person runs it: what dies below it is started again, and it ends clean."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from slackwater.cli.profile import read_profile
from tests.processes import free_port
from tests.service import jsonl, line

LINES = 320


@contextlib.contextmanager
def up(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command on the simulated engine, 0.4 s a line; it is ended, and must end well."""
    settings = {
        "SLACKWATER_SIMULATED_SECONDS_PER_TOKEN": "0.05",
        "SLACKWATER_MAX_NUM_SEQS": "16",
        "SLACKWATER_PROBE_PORT": str(free_port()),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    command = [sys.executable, "-m", "slackwater", "up", "--simulated", "--data-dir", str(folder / "data")]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(free_port())],
            env=inherited | settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        end = time.monotonic() + 120
        while b"Slackwater is up" not in (folder / "up.log").read_bytes():
            assert process.poll() is None, (folder / "up.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        finally:
            process.kill()


def test_a_killed_database_is_started_again_and_no_batch_fails(tmp_path: Path) -> None:
    with up(tmp_path) as process:
        profile = read_profile(tmp_path / "data" / "profile.toml")
        assert profile is not None
        client = openai.OpenAI(base_url=profile.base_url, api_key=profile.api_key, max_retries=10)
        tickets = jsonl(line(f"r{n}", f"Ticket {n}") for n in range(LINES))
        uploaded = client.files.create(file=("in.jsonl", tickets), purpose="batch")
        batch = client.batches.create(
            input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        finished = until(client, batch.id, more_than=0)

        killed_at = time.monotonic()
        postmaster = int((tmp_path / "data" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)

        until(client, batch.id, more_than=finished + 32)
        assert time.monotonic() - killed_at < 60
        batch = client.batches.retrieve(batch.id)
        end = time.monotonic() + 120
        while batch.status not in {"completed", "failed"} and time.monotonic() < end:
            time.sleep(0.1)
            batch = client.batches.retrieve(batch.id)
        assert batch.status == "completed", batch
        assert batch.request_counts is not None
        assert (batch.request_counts.completed, batch.request_counts.failed) == (LINES, 0)
        audited = subprocess.run(
            [sys.executable, "-m", "slackwater", "audit", "--json", batch.id],
            env=os.environ | {"SLACKWATER_CONFIG_FILE": str(tmp_path / "data" / "site.toml")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(audited.stdout)["sound"], audited.stderr
    assert process.returncode == 0
    said = (tmp_path / "up.log").read_text()
    assert "PostgreSQL ended and is started again" in said
    assert said.rstrip().endswith("ending …")


def until(client: openai.OpenAI, batch_id: str, *, more_than: int) -> int:
    """Wait until more lines than that have a result; returns how many have."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(openai.APIStatusError, openai.APIConnectionError):
            counts = client.batches.retrieve(batch_id).request_counts
            if counts is not None and counts.completed > more_than:
                return counts.completed
        time.sleep(0.1)
    pytest.fail("no line ends")
