import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from slackwater.domain.errors import LeaseLost
from slackwater.metrics import EngineMeter, Metrics, create_metrics
from tests.metrics_samples import new_metrics

_MODEL = "tiny"


def _value(metrics: Metrics, name: str, **labels: str) -> float:
    value = metrics.registry.get_sample_value(f"slackwater_{name}", labels)
    assert value is not None, (name, labels)
    return value


def _ticking(*, seconds: float) -> Metrics:
    """Metrics whose clock moves on by so much at every look."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += seconds

    clock = ticks()
    return create_metrics(CollectorRegistry(), version="0.0.0", clock=lambda: next(clock))


def test_a_unit_of_a_stage_is_counted_and_timed() -> None:
    metrics = _ticking(seconds=0.25)

    with metrics.stage("plan").unit():
        pass

    assert _value(metrics, "stage_units_total", stage="plan", outcome="done") == 1
    assert _value(metrics, "stage_seconds_sum", stage="plan") == 0.25


def test_a_look_that_found_nothing_is_counted_but_not_timed() -> None:
    metrics = _ticking(seconds=0.25)

    with metrics.stage("plan").unit() as unit:
        unit.outcome = "idle"

    assert _value(metrics, "stage_units_total", stage="plan", outcome="idle") == 1
    assert _value(metrics, "stage_seconds_count", stage="plan") == 0


@pytest.mark.parametrize(("error", "outcome"), [(KeyError("x"), "error"), (LeaseLost("gone"), "lost")])
def test_a_unit_that_raises_is_counted_for_what_it_raised(error: Exception, outcome: str) -> None:
    metrics = new_metrics()

    with pytest.raises(type(error)), metrics.stage("finish").unit():
        raise error

    assert _value(metrics, "stage_units_total", stage="finish", outcome=outcome) == 1
    assert _value(metrics, "stage_units_total", stage="finish", outcome="done") == 0


def test_a_cancelled_unit_is_no_error() -> None:
    metrics = new_metrics()

    with pytest.raises(asyncio.CancelledError), metrics.stage("work").unit():
        raise asyncio.CancelledError

    assert _value(metrics, "stage_units_total", stage="work", outcome="error") == 0


def test_every_outcome_of_a_bound_stage_shows_as_zero() -> None:
    metrics = new_metrics()

    metrics.stage("sweep")

    assert _value(metrics, "stage_units_total", stage="sweep", outcome="error") == 0


def test_the_first_expired_batch_is_a_step_from_zero_so_that_an_alert_sees_it() -> None:
    metrics = new_metrics()

    assert _value(metrics, "batches_ended_total", status="expired") == 0
    assert _value(metrics, "leases_total", outcome="lost") == 0
    assert _value(metrics, "line_retries_total", reason="timeout") == 0


def test_cached_tokens_are_part_of_the_input_and_counted_once() -> None:
    metrics = new_metrics()

    metrics.model(_MODEL).tokens_committed(input_tokens=100, cached_input_tokens=30, output_tokens=7)

    assert _value(metrics, "tokens_total", model=_MODEL, kind="uncached_input") == 70
    assert _value(metrics, "tokens_total", model=_MODEL, kind="cached_input") == 30
    assert _value(metrics, "tokens_total", model=_MODEL, kind="output") == 7


def test_an_engine_that_claims_more_cached_tokens_than_input_breaks_nothing() -> None:
    metrics = new_metrics()

    metrics.model(_MODEL).tokens_committed(input_tokens=10, cached_input_tokens=30, output_tokens=0)

    assert _value(metrics, "tokens_total", model=_MODEL, kind="uncached_input") == 0
    assert _value(metrics, "tokens_total", model=_MODEL, kind="cached_input") == 10


def test_lines_of_a_commit_are_counted_by_outcome() -> None:
    metrics = new_metrics()

    metrics.model(_MODEL).lines_committed(succeeded=8, errored=1, expired=2)

    assert _value(metrics, "lines_total", model=_MODEL, outcome="succeeded") == 8
    assert _value(metrics, "lines_total", model=_MODEL, outcome="errored") == 1
    assert _value(metrics, "lines_total", model=_MODEL, outcome="cancelled") == 0
    assert _value(metrics, "lines_total", model=_MODEL, outcome="expired") == 2


def test_a_strangers_path_and_method_make_no_series_of_their_own() -> None:
    metrics = new_metrics()

    metrics.http.answered(method="BREW", route=None, status=404, seconds=0.1)
    metrics.http.answered(method="PURGE", route=None, status=404, seconds=0.1)

    assert _value(metrics, "http_requests_total", method="other", route="other", status="404") == 2


def test_a_call_to_the_store_is_timed_and_its_bytes_counted_also_where_it_failed() -> None:
    metrics = new_metrics()
    store = metrics.store()

    store.observed("put", 0.5, 100, ok=True)
    store.observed("put", 1.0, 0, ok=False)

    assert _value(metrics, "store_seconds_sum", operation="put") == 1.5
    assert _value(metrics, "store_bytes_total", operation="put") == 100
    assert _value(metrics, "store_errors_total", operation="put") == 1


def _seconds(metrics: Metrics) -> tuple[float, float, float, float]:
    names = ("engine_seconds_total", "gpu_seconds_total", "engine_starved_seconds_total")
    busy, gpu, starved = (_value(metrics, name, model=_MODEL) for name in names)
    return busy, gpu, starved, _value(metrics, "engine_flooded_seconds_total", model=_MODEL)


def _meter(metrics: Metrics) -> EngineMeter:
    return EngineMeter(metrics.model(_MODEL), slots=8, surplus=2, gpus=4, now=100.0)


def test_an_idle_engine_costs_nothing() -> None:
    metrics = new_metrics()

    _meter(metrics).observe(160.0, in_flight=0, lines_waiting=False)

    assert _seconds(metrics) == (0, 0, 0, 0)


def test_a_busy_engine_is_charged_for_each_of_its_gpus() -> None:
    metrics = new_metrics()
    meter = _meter(metrics)

    meter.observe(101.0, in_flight=10, lines_waiting=True)
    meter.observe(104.0, in_flight=0, lines_waiting=False)

    assert _seconds(metrics) == (3, 12, 0, 0)
    assert _value(metrics, "engine_in_flight", model=_MODEL) == 0
    assert _value(metrics, "engine_slots", model=_MODEL) == 8


def test_empty_slots_starve_an_engine_only_while_lines_wait() -> None:
    metrics = new_metrics()
    meter = _meter(metrics)

    meter.observe(100.0, in_flight=3, lines_waiting=True)
    meter.observe(102.0, in_flight=0, lines_waiting=True)
    meter.observe(103.0, in_flight=3, lines_waiting=False)
    meter.observe(110.0, in_flight=0, lines_waiting=False)

    assert _seconds(metrics) == (10, 40, 3, 0)


def test_more_in_flight_than_slots_and_surplus_floods_an_engine() -> None:
    metrics = new_metrics()
    meter = _meter(metrics)

    meter.observe(100.0, in_flight=11, lines_waiting=True)
    meter.observe(102.0, in_flight=10, lines_waiting=True)
    meter.observe(103.0, in_flight=0, lines_waiting=False)

    assert _seconds(metrics) == (3, 12, 0, 2)


def test_looks_at_the_same_instant_charge_nothing() -> None:
    metrics = new_metrics()
    meter = _meter(metrics)

    for _ in range(3):
        meter.observe(100.0, in_flight=8, lines_waiting=True)

    assert _seconds(metrics) == (0, 0, 0, 0)
