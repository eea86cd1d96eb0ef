"""A worker's speed is measured while it has more lines than it can send."""

import pytest

from slackwater.flow.work_speed import Speed


def test_nothing_is_known_at_first() -> None:
    speed = Speed()
    assert not speed.measure(100.0, 0)
    assert speed.lines_per_second is None


def test_time_without_work_is_no_slowness() -> None:
    speed = Speed()
    for burst in range(4):
        start = burst * 100.0
        speed.saturated(start, burst * 600)
        speed.ran_dry(start + 0.1, burst * 600 + 600)
    assert speed.measure(400.0, 2400)
    assert speed.lines_per_second == pytest.approx(6000.0)


def test_a_worker_that_is_saturated_throughout_learns_every_half_second() -> None:
    speed = Speed()
    speed.saturated(0.0, 0)
    assert not speed.measure(0.4, 40)
    assert speed.measure(0.6, 60)
    assert speed.lines_per_second == pytest.approx(100.0)
    assert speed.measure(1.2, 180)
    assert speed.lines_per_second == pytest.approx(100.0 + (200.0 - 100.0) * 0.3)


def test_lines_that_all_fit_into_the_engine_at_once_teach_nothing() -> None:
    speed = Speed()
    speed.saturated(0.0, 0)
    speed.ran_dry(0.0001, 0)
    assert not speed.measure(5.0, 100)
    assert speed.lines_per_second is None
