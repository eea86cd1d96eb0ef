"""Every metric moves, and every query of the dashboard finds data, on a live service scraped by a real Prometheus."""

import json
from pathlib import Path
from typing import Final

import openai

from tests.processes import running
from tests.prometheus import Query, dashboard_queries, run_prometheus
from tests.service import jsonl, line

NEVER_MOVES_HERE: Final = {
    "slackwater_engine_restarts_total": "no engine is supervised",
    "slackwater_chunk_checkpoint_seconds_count": "chunks are not checkpointed yet",
    "slackwater_engine_flooded_seconds_total": "the simulated engine is never flooded",
    "slackwater_store_errors_total": "the store makes no errors",
}
MOVED: Final = (
    "slackwater_stage_units_total",
    "slackwater_stage_seconds_count",
    "slackwater_upload_bytes_total",
    "slackwater_plan_rejected_lines_total",
    "slackwater_batches_ended_total",
    "slackwater_lines_total",
    "slackwater_tokens_total",
    "slackwater_line_retries_total",
    "slackwater_leases_total",
    "slackwater_chunk_commit_seconds_count",
    "slackwater_sync_seconds_count",
    "slackwater_engine_slots",
    "slackwater_engine_request_seconds_count",
    "slackwater_engine_seconds_total",
    "slackwater_gpu_seconds_total",
    "slackwater_model_workers",
    "slackwater_workers",
    "slackwater_queue_view_timestamp_seconds",
    "slackwater_leader",
    "slackwater_leader_term",
    "slackwater_leader_tick_seconds_count",
    "slackwater_store_seconds_count",
    "slackwater_store_bytes_total",
    "slackwater_http_requests_total",
    "slackwater_http_request_seconds_count",
    "slackwater_event_loop_lag_seconds_count",
    "slackwater_build_info",
)


async def test_a_batch_moves_every_metric_and_fills_the_dashboard(database_url: str, tmp_path: Path) -> None:
    site = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_STORE_URL": f"file://{tmp_path / 'objects'}",
        "SLACKWATER_ENGINE": "simulated",
        "SLACKWATER_SIMULATED_SECONDS_PER_TOKEN": "0.01",
        "SLACKWATER_MAX_NUM_SEQS": "16",
    }
    with running(site, tmp_path) as processes:
        key = processes.prepare()
        for role in ("api", "control", "work"):
            processes.start(role)
        client = openai.OpenAI(base_url=processes.base_url, api_key=key, max_retries=0)
        targets = {role: f"127.0.0.1:{processes.probes[role]}" for role in processes.probes}
        async with run_prometheus(targets, tmp_path) as prometheus:
            processes.call("model", "add", "simulated")
            # What is to be seen while lines wait must not be over before the first look.
            await prometheus.scraped(1)
            good = [line(f"r{n}", f"Ticket {n}") for n in range(600)]
            odd = [
                line("retried", "~fault:503*1~"),
                line("refused", max_tokens=10**6),
                line("errored", temperature="hot"),
            ]
            uploaded = client.files.create(file=("in.jsonl", jsonl(good + odd)), purpose="batch")
            batch = client.batches.create(
                input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            filled: set[Query] = set()
            while batch.status not in {"completed", "failed"}:
                batch = client.batches.retrieve(batch.id)
                # Some panels have something to show only while lines wait.
                filled |= {query for query in dashboard_queries() if await prometheus.ask(query.expression)}
            assert batch.status == "completed", batch
            assert json.loads(processes.call("audit", batch.id))["sound"]
            await prometheus.scraped(8)

            still = [name for name in MOVED if not any(s.value > 0 for s in await prometheus.ask(name))]
            assert still == []
            known = {sample.labels["__name__"] for sample in await prometheus.ask('{__name__=~"slackwater_.+"}')}
            assert {name for name in NEVER_MOVES_HERE if name in known} == set(NEVER_MOVES_HERE)
            filled |= {query for query in dashboard_queries() if await prometheus.ask(query.expression)}
            assert set(dashboard_queries()) - filled == set()
