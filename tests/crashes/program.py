"""One role of the service, composed with a seam that kills it: ``python -m tests.crashes.program ROLE``.

``--kill before:plan.publish`` ends the process with SIGKILL when it comes to that point. ``--hold POINT=FILE`` stops it
at a point for as long as FILE is there; FILE.reached appears beside it. Without either it is the role as it is shipped,
and what is shipped has no such switch.
"""

import asyncio
import os
import signal
from argparse import ArgumentParser
from pathlib import Path

from slackwater.cli.serve_api import serve_api
from slackwater.cli.serve_control import serve_control
from slackwater.cli.serve_work import serve_work
from slackwater.cli.site import Seams, begin, run

_LOOK_SECONDS = 0.02


class CrashSeam:
    """Stands around every write, of the database and of the store."""

    def __init__(self, kill: str | None, hold: tuple[str, Path] | None) -> None:
        self._kill = kill
        self._hold = hold

    async def before_commit(self, stage: str) -> None:
        """See TransactionSeam."""
        await self._pass(f"before:{stage}")

    async def after_commit(self, stage: str) -> None:
        """See TransactionSeam."""
        await self._pass(f"after:{stage}")

    async def before(self, stage: str, key: str) -> None:
        """See Seam."""
        await self._pass(f"before:{stage}")

    async def after(self, stage: str, key: str) -> None:
        """See Seam."""
        await self._pass(f"after:{stage}")

    async def _pass(self, point: str) -> None:
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._hold is not None and point == self._hold[0]:
            barrier = self._hold[1]
            barrier.with_suffix(".reached").touch()
            while barrier.exists():
                await asyncio.sleep(_LOOK_SECONDS)


def main() -> None:
    """Run the role until it is told to stop, or dies."""
    parser = ArgumentParser(prog="python -m tests.crashes.program", description=__doc__)
    parser.add_argument("role", choices=("api", "control", "work"))
    parser.add_argument("--kill", help="the point at which to die")
    parser.add_argument("--hold", help="POINT=FILE")
    parser.add_argument("--supervisor", type=int, help="process id to end with")
    given = parser.parse_args()
    point, _, barrier = (given.hold or "").partition("=")
    seam = CrashSeam(given.kill, (point, Path(barrier)) if point else None)
    seams = Seams(database=seam, store=seam)
    settings = begin(given.role, given.supervisor)
    match given.role:
        case "api":
            run(serve_api(settings, seams))
        case "control":
            run(serve_control(settings, seams))
        case _:
            run(serve_work(settings, seams))


if __name__ == "__main__":
    main()
