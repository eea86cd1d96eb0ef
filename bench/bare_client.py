"""What is compared with the service: a bare client that sends a batch input's bodies to an engine, and no more.

A program of its own: ``python -m bench.bare_client URL FILE --in-flight 256`` keeps so many requests at the engine;
with ``--static`` it sends groups of that size and waits for the last answer of each. Prints wall time (first POST to
last reply), its own CPU time and the count, as JSON. Every answer must be a completion; none is kept.
"""

import asyncio
import json
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import uvloop

from bench.engine_http import Post, with_aiohttp
from slackwater.domain.request_lines import request_lines


def bodies_of(path: Path) -> list[bytes]:
    """Read the bodies of a batch input."""
    return [bytes(line.body) for line in request_lines(path.read_bytes(), at_start=True)]


async def send_bounded(post: Post, bodies: list[bytes], in_flight: int) -> None:
    """Keep so many requests at the engine until none is left."""
    queue = iter(bodies)

    async def consume() -> None:
        for body in queue:
            await _complete(post, body)

    await asyncio.gather(*(consume() for _ in range(in_flight)))


async def send_static(post: Post, bodies: list[bytes], size: int) -> None:
    """Send group after group, each when the one before has been answered to the last."""
    for first in range(0, len(bodies), size):
        await asyncio.gather(*(_complete(post, body) for body in bodies[first : first + size]))


async def _complete(post: Post, body: bytes) -> None:
    answer = await post(body)
    assert isinstance(answer, bytes)
    assert b'"choices"' in answer, answer[:500]


async def _run(given: Namespace) -> None:
    bodies = bodies_of(given.file)
    send = send_static if given.static else send_bounded

    async def run(post: Post) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        await send(post, bodies, given.in_flight)
        spent = {"wall_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        print(json.dumps(spent | {"requests": len(bodies)}))

    await with_aiohttp(given.url, run)


def main() -> None:
    """Send one file."""
    parser = ArgumentParser(prog="python -m bench.bare_client", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--in-flight", type=int, required=True)
    parser.add_argument("--static", action="store_true")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
