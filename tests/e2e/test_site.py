"""A site by settings alone: PostgreSQL, SeaweedFS, api, control and two workers as real processes."""

import json
import time
from pathlib import Path

import openai

from tests.processes import running
from tests.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tests.service import jsonl, line


def test_a_worker_killed_half_way_loses_and_doubles_nothing(
    database_url: str, seaweedfs: S3Server, tmp_path: Path
) -> None:
    site = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_STORE_URL": seaweedfs.new_url(),
        "SLACKWATER_STORE_ENDPOINT": seaweedfs.endpoint,
        "SLACKWATER_STORE_ACCESS_KEY_ID": ACCESS_KEY,
        "SLACKWATER_STORE_SECRET_ACCESS_KEY": SECRET_KEY,
        "SLACKWATER_ENGINE": "simulated",
        "SLACKWATER_SIMULATED_SECONDS_PER_TOKEN": "0.03",
        "SLACKWATER_MAX_NUM_SEQS": "16",
    }
    with running(site, tmp_path) as processes:
        key = processes.prepare(model="simulated", alias="gpt-4.1-mini")
        processes.start("api")
        processes.start("control")
        processes.start("work", "work-1", worker_id="work-1")
        processes.start("work", "work-2", worker_id="work-2")

        client = openai.OpenAI(base_url=processes.base_url, api_key=key)
        tickets = jsonl(line(f"ticket-{n:04d}", f"Ticket {n}", model="gpt-4.1-mini") for n in range(1000))
        uploaded = client.files.create(file=("tickets.jsonl", tickets), purpose="batch")
        batch = client.batches.create(
            input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        killed = False
        end = time.monotonic() + 150
        while batch.status not in {"completed", "failed", "expired", "cancelled"} and time.monotonic() < end:
            batch = client.batches.retrieve(batch.id)
            assert batch.request_counts is not None
            if not killed and batch.request_counts.completed >= 300:
                processes.kill("work-1")
                killed = True
            time.sleep(0.1)

        assert killed
        assert batch.status == "completed", batch
        assert batch.output_file_id is not None
        lines = client.files.content(batch.output_file_id).text.splitlines()
        assert sorted(json.loads(one)["custom_id"] for one in lines) == [f"ticket-{n:04d}" for n in range(1000)]
        report = json.loads(processes.call("audit", batch.id))
        assert report["sound"], report
