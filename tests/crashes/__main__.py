"""The whole matrix: a real process killed at every crash point. ``python -m tests.crashes`` prints the outcomes."""

import asyncio
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import psycopg

from slackwater.db.migrate import migrate
from slackwater.embedded.postgres import EmbeddedPostgres
from tests.crashes.matrix import Outcome, kill_at
from tests.crashes.points import Point, points

_TEMPLATE = "crashes_template"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _try_all(server_url: str, chosen: Sequence[Point], folder: Path, *, at_once: int) -> list[Outcome]:
    """Try the points, a few at once, each in a database of its own on one server."""
    places = asyncio.Semaphore(at_once)
    base = server_url.rpartition("/")[0]

    async def attempt(number: int, point: Point) -> Outcome:
        name = f"crash_{number}"
        async with places:
            async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as connection:
                await connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}".encode())
            outcome = await kill_at(point, f"{base}/{name}", folder / name)
            _say(outcome.row)
            async with await psycopg.AsyncConnection.connect(server_url, autocommit=True) as connection:
                await connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            return outcome

    return await asyncio.gather(*(attempt(number, point) for number, point in enumerate(chosen)))


def main() -> int:
    """Run the matrix; 1 where a point was not reached or something was not sound."""
    parser = ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--at-once", type=int, default=6, help="how many points are tried at once")
    parser.add_argument("--keep", type=Path, help="keep logs and stores in this folder")
    parser.add_argument("stage", nargs="*", help="only these stages, such as work.commit; all by default")
    given = parser.parse_args()
    chosen = [point for point in points() if not given.stage or point.stage in given.stage]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slackwater-crashes-") as temporary:
        folder = given.keep or Path(temporary)
        server = EmbeddedPostgres(Path(temporary) / "postgres", token="t" * 43, fast_unsafe=True, max_connections=300)
        server.start()
        try:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {_TEMPLATE}".encode())
            migrate(f"{server.url.rpartition('/')[0]}/{_TEMPLATE}")
            outcomes = asyncio.run(_try_all(server.url, chosen, folder, at_once=given.at_once))
        finally:
            server.stop()
    wrong = [outcome for outcome in outcomes if outcome.faults]
    _say(f"{len(outcomes)} points, {len(wrong)} not sound, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
