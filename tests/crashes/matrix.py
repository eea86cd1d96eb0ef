"""One crash point tried: the process dies there, is started again, and everything has to have come well."""

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slackwater.flow.audit import audit
from tests.crashes.points import DRIVEN, Point
from tests.crashes.scenarios import SCENARIOS, Scenario
from tests.crashes.world import PATIENCE_SECONDS, Begun, World, new_world


@dataclass(kw_only=True)
class Outcome:
    """What came of one crash."""

    point: Point
    role: str
    seconds: float = 0.0
    endings: Sequence[str] = ()
    faults: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        """The outcome as a row of the table."""
        verdict = "; ".join(self.faults) if self.faults else f"sound: {', '.join(self.endings)}"
        return f"{self.point!s:<28} {self.role:<8} {self.seconds:6.1f} s  {verdict}"


async def kill_at(point: Point, database_url: str, folder: Path, *, scenario: str | None = None) -> Outcome:
    """Kill a process at a point and start it again; ``folder`` is the try's own. Never raises for what it finds.

    ``scenario`` by its name; the one that is known to come to the point where None is given.
    """
    chosen = SCENARIOS[scenario or DRIVEN[point.stage]]
    outcome = Outcome(point=point, role=chosen.role)
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS * 2), new_world(database_url, folder) as world:
            await _try(point, chosen, world, outcome)
    except Exception as error:  # noqa: BLE001  whatever it was, the other points are tried
        outcome.faults.append(f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - began
    return outcome


async def _try(point: Point, scenario: Scenario, world: World, outcome: Outcome) -> None:
    await scenario.arrange(world)
    hold = () if scenario.hold is None else ("--hold", f"{scenario.hold}={world.barrier}")
    world.barrier.touch()
    world.start(scenario.role, "--kill", str(point), *hold, **scenario.settings)
    acting = asyncio.create_task(scenario.act(world))
    code = await world.ended()
    if code != -signal.SIGKILL:
        outcome.faults.append(f"{point} was not reached: the process ended with {code}")
    await world.pass_the_claims_time()
    world.start(scenario.role, **scenario.settings)
    await acting
    outcome.endings = [await _end(world, begun, outcome) for begun in world.begun]
    await scenario.settled(world)
    # Twice: as its customer sees a batch, and when all that it left behind has been swept.
    for begun in world.begun:
        outcome.faults += (await audit(world.db, world.store, begun.batch)).faults
    await world.sweep()
    for begun in world.begun:
        outcome.faults += (await audit(world.db, world.store, begun.batch)).faults
    outcome.faults += [f"an object that no row names: {key}" for key in await world.unnamed_objects()]
    if await world.told_to_stop() not in {0, -signal.SIGTERM}:
        outcome.faults.append("the restarted process did not end well")


async def _end(world: World, begun: Begun, outcome: Outcome) -> str:
    """Wait for a batch's end, and compare its results with its lines."""
    found = await world.service.until(begun.batch, seconds=PATIENCE_SECONDS)
    if found.status != begun.ending:
        outcome.faults.append(f"{begun.batch} ended {found.status}, not {begun.ending}")
    if begun.ids is not None and set(await world.service.results(begun.batch)) != set(begun.ids):
        outcome.faults.append(f"{begun.batch} has not exactly one result for each line")
    return found.status
