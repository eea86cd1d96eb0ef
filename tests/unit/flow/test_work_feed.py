"""The feeder lets go of what it has finished."""

import asyncio
import gc
import random
import time
import uuid

from slackwater.db.queue.leases import Lease
from slackwater.domain.ids import BatchId, LeaseToken, TenantId
from slackwater.domain.line_errors import LineError
from slackwater.domain.outcomes import RetryPolicy
from slackwater.flow.work_chunk import ChunkRun
from slackwater.flow.work_feed import Feeder, FeedSettings
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings

IN_FLIGHT = 16
LINE = b'{"custom_id":"r%d","body":{"model":"simulated","messages":[{"role":"user","content":"%d"}],"max_tokens":4}}\n'


class Silent:
    def answered(self, seconds: float) -> None: ...

    def retried(self, error: LineError) -> None: ...


def chunk(seq: int, lines: int = 40) -> ChunkRun:
    lease = Lease(
        batch_id=BatchId("batch_" + "0" * 32),
        seq=seq,
        token=LeaseToken(uuid.UUID(int=seq)),
        tenant_id=TenantId("t"),
        model="simulated",
        asked_model="simulated",
        source_key="",
        byte_start=1,
        byte_length=0,
        n_requests=lines,
        first_number=0,
        attempts=1,
        endpoint="/v1/chat/completions",
        dialect="openai",
        stopped=None,
    )
    source = b"".join(LINE % (n, n) for n in range(lines))
    return ChunkRun(lease, source, operator_prefix=b"", started_at=0.0)


async def test_idle_consumers_hold_no_finished_chunk() -> None:
    left = [8]
    ended = asyncio.Event()

    def completed(_run: ChunkRun) -> None:
        left[0] -= 1
        if left[0] == 0:
            ended.set()

    # With a latency every consumer runs, and so each of them ends up idle behind some chunk's last line.
    engine = SimulatedEngine(
        SimulatedSettings(latency=Latency(decode_seconds_per_token=0.0005), max_num_seqs=IN_FLIGHT)
    )
    feeder = Feeder(
        engine,
        settings=FeedSettings(in_flight=IN_FLIGHT, request_timeout_seconds=10.0, retries=RetryPolicy()),
        observer=Silent(),
        completed=completed,
        hungry=lambda: None,
        unreachable=lambda: None,
        clock=time.perf_counter,
        jitter=random.random,
    )
    feeder.start()
    for seq in range(8):
        feeder.add(chunk(seq))
    await asyncio.wait_for(ended.wait(), 30)
    await asyncio.sleep(0)
    gc.collect()
    held = [found for found in gc.get_objects() if isinstance(found, ChunkRun)]
    await feeder.close()
    assert len(held) == 0
