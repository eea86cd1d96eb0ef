"""N slots: never more at once, first come first served, refilled in the moment one falls free."""

import asyncio

import pytest

from slackwater.inference.simulated_slots import Slots


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_never_more_run_at_once_than_there_are_slots() -> None:
    slots = Slots(3)

    await asyncio.gather(*(slots.hold(0.0) for _ in range(50)))

    assert (slots.peak, slots.running, slots.waiting) == (3, 0, 0)


async def test_slots_are_taken_in_the_order_of_arrival() -> None:
    slots = Slots(1)
    ended: list[int] = []

    async def work(number: int) -> None:
        await slots.hold(0.0)
        ended.append(number)

    await asyncio.gather(*(work(number) for number in range(10)))

    assert ended == list(range(10))


async def test_a_freed_slot_is_never_seen_empty_while_something_waits() -> None:
    slots = Slots(2)
    calls = [asyncio.create_task(slots.hold(0.001)) for _ in range(20)]
    await settle()

    while slots.waiting:
        assert slots.running == 2
        await asyncio.sleep(0)

    await asyncio.gather(*calls)


async def test_cancelling_frees_a_slot_for_the_next_and_a_place_in_the_queue() -> None:
    slots = Slots(1)
    first, second, third = (asyncio.create_task(slots.hold(None)) for _ in range(3))
    await settle()
    assert (slots.running, slots.waiting) == (1, 2)

    second.cancel()
    await settle()
    assert (slots.running, slots.waiting) == (1, 1)
    first.cancel()
    await settle()

    assert (slots.running, slots.waiting, third.done()) == (1, 0, False)
    third.cancel()
    await settle()
    assert slots.running == 0


async def test_breaking_off_ends_all_work_with_the_error_and_leaves_free_slots() -> None:
    slots = Slots(2)
    calls = [asyncio.create_task(slots.hold(None)) for _ in range(5)]
    await settle()

    slots.break_off(ConnectionError("gone"))

    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionError] * 5
    await slots.hold(0.0)
    assert (slots.running, slots.waiting, slots.peak) == (0, 0, 2)


def test_an_engine_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="one slot"):
        Slots(0)
