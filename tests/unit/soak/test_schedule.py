"""What a soak draws: the same for the same seed, a bit of everything, and nothing that befalls what is still down."""

from hypothesis import given
from hypothesis import strategies as st

from tests.soak.lines import Kind, write_lines
from tests.soak.schedule import HAZARDS, Fault, draw

seeds = st.integers(min_value=0, max_value=10_000)


@given(seed=seeds)
def test_a_seed_draws_one_soak(seed: int) -> None:
    assert draw(seed, 120) == draw(seed, 120)
    assert draw(seed, 120) != draw(seed + 1, 120)


@given(seed=seeds)
def test_ten_minutes_hold_every_hazard_and_fifty_batches_that_customers_meddle_with(seed: int) -> None:
    drawn = draw(seed, 600)

    assert {fault.kind for fault in drawn.faults} == HAZARDS.keys()
    assert len(drawn.orders) >= 50
    assert {order.act for order in drawn.orders} == {"none", "cancel", "pause", "expire", "delete_input"}
    assert any(order.mixture.poison for order in drawn.orders)
    assert {order.invalid_lines for order in drawn.orders if order.mixture.invalid} == {"fail", "error"}
    assert max(fault.end_seconds for fault in drawn.faults) <= 600


@given(seed=seeds)
def test_no_fault_befalls_what_another_one_still_holds_down(seed: int) -> None:
    over: dict[tuple[str, int], Fault] = {}
    for fault in draw(seed, 300).faults:
        victim = (HAZARDS[fault.kind].target, fault.target)
        if victim in over:
            assert fault.at_seconds > over[victim].end_seconds
        over[victim] = fault


def test_an_order_asks_for_the_lines_it_says() -> None:
    order = next(order for order in draw(1, 600).orders if order.mixture.poison)

    data, asked = write_lines(order.name, order.endpoint, order.mixture, seed=1)

    assert data.count(b"\n") == len(asked) == order.mixture.total
    assert sum(line.kind is Kind.POISON for line in asked) == data.count(b"~fault:crash~") == order.mixture.poison
    assert (data, asked) == write_lines(order.name, order.endpoint, order.mixture, seed=1)
