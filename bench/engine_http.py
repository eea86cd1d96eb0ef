"""What it costs to send a request to an engine over HTTP: a bare aiohttp client against ours, on loopback.

One simulated engine serves both, as a process of its own; each client is a process of its own, they take turns, and the
median round is printed. Bounded: 20,000 requests a round, 256 in flight.

    python bench/engine_http.py [--rounds 3] [--requests 20000] [--in-flight 256]
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import uvloop

from slackwater.domain.outcomes import success
from slackwater.domain.replies import Reply
from slackwater.inference.http_client import HttpClient, HttpLimits

PATH = "/v1/chat/completions"
CLIENTS = ("aiohttp", "ours", "ours, read")
Post = Callable[[bytes], Awaitable[object]]


def body(number: int) -> bytes:
    """A chat body of half a kilobyte, a different one for each number."""
    messages = [
        {"role": "system", "content": "You sort support tickets into one of five queues. " * 6},
        {"role": "user", "content": f"Ticket {number}: the harbour pilot's tablet shows yesterday's tide table."},
    ]
    return json.dumps({"model": "simulated", "messages": messages, "max_tokens": 16}).encode()


async def with_aiohttp(url: str, run: Callable[[Post], Awaitable[None]]) -> None:
    """A bare client, with everything off that costs and is not needed."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Content-Type": "application/json"},
    )

    async def post(request: bytes) -> bytes:
        async with session.post(url + PATH, data=request, allow_redirects=False) as response:
            return await response.read()

    async with session:
        await run(post)


async def with_ours(url: str, run: Callable[[Post], Awaitable[None]], *, read: bool) -> None:
    """The client that workers use, alone or with the reading of each reply."""
    client = HttpClient(url, api_key=None, limits=HttpLimits())

    async def post(request: bytes) -> Reply:
        return await client.post(PATH, request, timeout_seconds=60.0)

    async def post_and_read(request: bytes) -> None:
        assert success(await post(request)) is not None

    await run(post_and_read if read else post)
    await client.close()


async def client(given: Namespace) -> None:
    """Run one round in this process and print its wall and CPU seconds."""
    bodies = [body(number) for number in range(given.requests)]
    spent: list[float] = []

    async def run(post: Post) -> None:
        queue = iter(bodies)

        async def consume() -> None:
            for request in queue:
                await post(request)

        await post(bodies[0])
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(consume() for _ in range(given.in_flight)))
        spent.extend((time.perf_counter() - wall, time.process_time() - cpu))

    if given.client == "aiohttp":
        await with_aiohttp(given.url, run)
    else:
        await with_ours(given.url, run, read=given.client != "ours")
    print(json.dumps(spent))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, from Linux's clock ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def round_of(name: str, url: str, given: Namespace) -> list[float]:
    """Run one client process; returns wall and CPU seconds."""
    command = [sys.executable, __file__, "--client", name, "--url", url]
    command += ["--requests", str(given.requests), "--in-flight", str(given.in_flight)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    spent: list[float] = json.loads(printed)
    return spent


def compare(given: Namespace) -> None:
    """Alternate the clients against one server and print the median of each."""
    command = [sys.executable, "-m", "slackwater.inference.simulated_server", "--max-num-seqs", str(given.in_flight)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in CLIENTS}
        for _ in range(given.rounds):
            for name in CLIENTS:
                before = cpu_seconds(server.pid)
                wall, cpu = round_of(name, url, given)
                rows[name].append((wall, cpu, cpu_seconds(server.pid) - before))
    finally:
        server.terminate()
        server.wait()
    print(f"{given.requests} requests a round, {given.in_flight} in flight, median of {given.rounds} rounds")
    print(f"{'client':20}{'requests/s':>12}{'client µs':>12}{'server µs':>12}")
    for name, rounds in rows.items():
        wall, cpu, served = (statistics.median(column) / given.requests for column in zip(*rounds, strict=True))
        print(f"{name:20}{1 / wall:>12,.0f}{cpu * 1e6:>12.1f}{served * 1e6:>12.1f}")


def main() -> None:
    """Compare, or be one of the compared."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--url")
    given = parser.parse_args()
    if given.client:
        uvloop.run(client(given))
    else:
        compare(given)


if __name__ == "__main__":
    main()
