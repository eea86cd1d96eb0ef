"""The feeder tries again what may pass, ends every line, and lets go of what it has finished."""

import asyncio
import gc
import random
import time
import uuid
from collections.abc import Callable

import pytest
import uvloop

from slackwater.db.queue.leases import Lease
from slackwater.domain.ids import BatchId, LeaseToken, TenantId
from slackwater.domain.line_errors import LineError
from slackwater.domain.outcomes import RetryPolicy
from slackwater.flow.chunk_run import ChunkRun
from slackwater.flow.work_feed import Feeder, FeedSettings
from slackwater.inference.protocol import Engine
from slackwater.inference.simulated import Latency, SimulatedEngine, SimulatedSettings

IN_FLIGHT = 16
LINE = b'{"custom_id":"r%d","body":{"model":"simulated","messages":[{"role":"user","content":"%d"}],"max_tokens":4}}\n'


class Silent:
    def answered(self, seconds: float) -> None: ...

    def retried(self, error: LineError) -> None: ...


def chunk(seq: int, lines: int = 40, *, line: bytes = LINE) -> ChunkRun:
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
        crc32=None,
        index=None,
        first_number=0,
        attempts=1,
        checkpoints=0,
        endpoint="/v1/chat/completions",
        dialect="openai",
        stopped=None,
    )
    source = b"".join(line % (n, n) for n in range(lines))
    return ChunkRun(lease, source, operator_prefix=b"", started_at=0.0)


def feeder_of(engine: Engine, completed: Callable[[ChunkRun], None], *, retries: RetryPolicy | None = None) -> Feeder:
    def doubted() -> None:
        asyncio.get_running_loop().call_soon(lambda: feeder.engine_lives(feeder.doubts_mark))

    feeder = Feeder(
        engine,
        settings=FeedSettings(in_flight=IN_FLIGHT, request_timeout_seconds=10.0, retries=retries or RetryPolicy()),
        observer=Silent(),
        completed=completed,
        hungry=lambda: None,
        doubted=doubted,
        clock=time.perf_counter,
        jitter=random.random,
    )
    return feeder


async def test_idle_consumers_hold_no_finished_chunk() -> None:
    left = [8]
    ended = asyncio.Event()

    def completed(_run: ChunkRun) -> None:
        left[0] -= 1
        if left[0] == 0:
            ended.set()

    others = all_runs()
    # With a latency every consumer runs, and so each of them ends up idle behind some chunk's last line.
    engine = SimulatedEngine(
        SimulatedSettings(latency=Latency(decode_seconds_per_token=0.0005), max_num_seqs=IN_FLIGHT)
    )
    feeder = feeder_of(engine, completed)
    feeder.start()
    for seq in range(8):
        feeder.add(chunk(seq))
    await asyncio.wait_for(ended.wait(), 30)
    await asyncio.sleep(0)
    held = [found for found in all_runs() if not any(found is other for other in others)]
    await feeder.close()
    assert len(held) == 0


def all_runs() -> list[ChunkRun]:
    """Every run that anything in this process still refers to, other tests' leftovers among them."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, ChunkRun)]


@pytest.mark.parametrize("pause", [0.0101, 0.0104, 0.0203, 0.05049])
def test_every_retry_is_sent_though_timers_of_uvloop_fire_early(pause: float) -> None:
    line = LINE.replace(b'"content":"%d"', b'"content":"%d ~fault:503*1~"')
    retries = RetryPolicy(first_pause_seconds=pause, longest_pause_seconds=pause)

    async def run() -> ChunkRun:
        ended: asyncio.Future[ChunkRun] = asyncio.get_running_loop().create_future()
        feeder = feeder_of(SimulatedEngine(), ended.set_result, retries=retries)
        feeder.start()
        # One line alone: no other line's timer may come to its rescue.
        feeder.add(chunk(0, lines=1, line=line))
        done = await asyncio.wait_for(ended, 5)
        await feeder.close()
        return done

    for _ in range(20):
        assert uvloop.run(run()).succeeded == 1


async def test_a_line_whose_connection_always_breaks_ends_although_the_engine_is_there() -> None:
    line = LINE.replace(b'"content":"%d"', b'"content":"%d ~fault:hang_up~"')
    ended: asyncio.Future[ChunkRun] = asyncio.get_running_loop().create_future()
    retries = RetryPolicy(max_attempts=3, first_pause_seconds=0.001, longest_pause_seconds=0.001)
    feeder = feeder_of(SimulatedEngine(), ended.set_result, retries=retries)
    feeder.start()
    feeder.add(chunk(0, lines=1, line=line))

    run = await asyncio.wait_for(ended, 5)

    assert (run.succeeded, run.errored) == (0, 1)
    assert b"engine_unreachable" in run.errors()
    await feeder.close()


async def test_a_consumer_that_fails_is_not_lost_in_silence() -> None:
    def completed(_run: ChunkRun) -> None:
        raise RuntimeError("a mistake of ours")

    feeder = feeder_of(SimulatedEngine(), completed)
    feeder.start()
    feeder.add(chunk(0))

    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await asyncio.wait_for(feeder.watch(), 5)
    await feeder.close()


async def test_a_suspect_from_before_that_has_to_be_retried_is_sent_by_its_retry_alone() -> None:
    ended: list[ChunkRun] = []
    engine = SimulatedEngine()
    feeder = feeder_of(engine, ended.append, retries=RetryPolicy(first_pause_seconds=0.05))
    run = chunk(1, 3, line=LINE.replace(b'"content":"%d"', b'"content":"%d ~fault:503_then_ok~"'))
    run.suspect([1])
    feeder.start()
    await feeder.hold()
    feeder.add(run)

    run.suspects.discard(1)
    await feeder.run_alone([(run, 1)])
    feeder.release()

    async with asyncio.timeout(30):
        while feeder.busy or not run.complete:
            await asyncio.sleep(0.01)
    assert (run.succeeded, run.finished, run.untried) == (3, 3, 0)
    assert engine.answered == 6, "each line was refused once and answered once"
    assert ended == [run]
    await feeder.close()
