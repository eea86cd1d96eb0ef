"""A process killed with -9 at a crash point: started again, it ends every batch with exactly one result a line.

These are the points that stand for all; ``make crashes`` tries each.
"""

from pathlib import Path

import pytest

from tests.crashes.matrix import kill_at
from tests.crashes.points import REPRESENTATIVE, Point


@pytest.mark.parametrize("point", REPRESENTATIVE, ids=str)
async def test_a_process_killed_at_a_crash_point_loses_and_doubles_nothing(
    point: Point, database_url: str, tmp_path: Path
) -> None:
    outcome = await kill_at(point, database_url, tmp_path / "world")

    assert outcome.faults == []


async def test_a_point_that_is_not_reached_is_a_fault(database_url: str, tmp_path: Path) -> None:
    """A planner that is told to stop never refuses a batch."""
    outcome = await kill_at(Point("before", "plan.fail"), database_url, tmp_path / "world", scenario="stopped_planner")

    assert any("was not reached" in fault for fault in outcome.faults)
