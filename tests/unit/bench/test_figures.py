"""The arithmetic behind what a benchmark reports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Figure, Target, figure, pairwise_percent, percent, percentile, shown

SAMPLES = st.lists(st.floats(0, 1e9), min_size=1, max_size=50)


def test_a_figure_is_the_median_of_its_samples() -> None:
    assert figure("speed", [9.0, 1.0, 2.0], "lines/s").value == 2.0


def test_a_figure_shows_how_far_its_samples_lie_apart() -> None:
    assert figure("speed", [9.0, 1.0, 2.0], "lines/s").spread == "1–9"
    assert figure("speed", [9.0], "lines/s").spread == ""


@pytest.mark.parametrize(("value", "verdict"), [(24_999.0, "missed"), (25_000.0, "ok"), (90_000.0, "ok")])
def test_a_least_value_is_reached_from_below(value: float, verdict: str) -> None:
    assert figure("speed", [value], "lines/s", least=25_000.0).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(45.1, "missed"), (45.0, "ok"), (0.0, "ok")])
def test_a_most_value_is_kept_from_above(value: float, verdict: str) -> None:
    assert figure("cost", [value], "µs", most=45.0).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(79.0, "missed"), (100.0, "ok"), (121.0, "missed")])
def test_a_target_may_have_both_bounds(value: float, verdict: str) -> None:
    target = Target(least=80.0, most=120.0)

    assert target.verdict(value) == verdict
    assert str(target) == "≥ 80, ≤ 120"


def test_the_verdict_is_on_the_median_and_not_on_the_best_round() -> None:
    assert figure("speed", [30_000.0, 20_000.0, 10_000.0], "lines/s", least=25_000.0).verdict == "missed"


def test_without_a_bound_there_is_no_target() -> None:
    without = figure("speed", [1.0], "lines/s")

    assert (without.target, without.verdict) == (None, None)


@pytest.mark.parametrize("bounds", [{}, {"least": 3.0}, {"most": 4.5}])
def test_a_figure_survives_its_file(bounds: dict[str, float]) -> None:
    written = figure("speed", [1.0, 2.5], "lines/s", **bounds)

    assert Figure.from_json(written.to_json()) == written


def test_a_percentile_is_one_of_the_samples() -> None:
    samples = [float(n) for n in range(1, 21)]

    assert percentile(samples, 0.5) == 10.0
    assert percentile(samples, 0.95) == 19.0
    assert percentile(samples, 1.0) == 20.0
    assert percentile([7.0], 0.95) == 7.0


@given(SAMPLES, st.floats(0.01, 1.0))
def test_at_least_the_share_does_not_exceed_the_percentile(samples: list[float], share: float) -> None:
    found = percentile(samples, share)

    assert found in samples
    assert sum(sample <= found for sample in samples) >= share * len(samples) - 1e-9
    assert sum(sample < found for sample in samples) < share * len(samples)


def test_shares_are_taken_round_by_round() -> None:
    assert pairwise_percent([8.0, 10.0], [10.0, 40.0]) == [80.0, 25.0]


def test_a_round_that_lacks_its_counterpart_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        pairwise_percent([1.0, 2.0], [1.0])


def test_of_nothing_every_part_is_nothing() -> None:
    assert percent(3.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (25_000.0, "25,000"), (41_234.5, "41,234"), (119.12, "119.1"), (12.345, "12.3"), (0.12345, "0.123")],
)
def test_numbers_are_written_as_exactly_as_they_deserve(value: float, text: str) -> None:
    assert shown(value) == text
