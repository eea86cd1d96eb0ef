"""Two minutes of a whole service in which everything dies, and then an audit of every batch."""

from pathlib import Path

from tests.soak.report import Report
from tests.soak.run import soak
from tests.soak.schedule import HAZARDS, draw

SEED = 3
SECONDS = 105.0


def test_nothing_is_lost_doubled_or_blamed_while_everything_dies(tmp_path: Path) -> None:
    schedule = draw(SEED, SECONDS)

    report = soak(schedule, tmp_path)

    assert report.violations == {}, shown(report)
    assert report.batches.total() == len(schedule.orders)
    assert sum(report.faults.values()) + sum(report.left_out.values()) == len(schedule.faults)
    assert len(report.faults) >= len(HAZARDS) - 2, report.faults
    assert report.verdict.answered > 1000
    # Faults that hurt nobody would show nothing: lines did run again, and poison did kill engines.
    assert report.rerun > 0
    assert report.verdict.errors["poison: engine_crashed"] > 0


def shown(report: Report) -> str:
    """What a person needs to see of a report that is not as it should be."""
    return str([report.violations, report.unsound, report.gave_up, report.not_ended, report.unasked_ends])
