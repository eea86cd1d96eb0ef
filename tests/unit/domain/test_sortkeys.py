from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.records import KEY_BYTES, RECORD_BYTES, pack_record, read_record, split_records
from slackwater.domain.sortkeys import DEEPEST, LEVELS, mean_sharing, shared_levels, some_neighbours, sort_key


def packed(prompt: bytes, *, model: int = 0, start: int = 0) -> bytes:
    return pack_record(*sort_key(model, prompt), len(prompt).bit_length(), start, len(prompt), 1, 0, 0)


def key(prompt: bytes, *, model: int = 0) -> bytes:
    return packed(prompt, model=model)[:KEY_BYTES]


BEGINNING = bytes(range(256)) * 80


@pytest.mark.parametrize(
    ("common", "levels"), [(0, 1), (255, 1), (256, 2), (1_023, 2), (1_024, 3), (4_095, 3), (4_096, 4), (16_383, 4)]
)
def test_prompts_share_the_levels_they_begin_alike_on(common: int, levels: int) -> None:
    one, other = BEGINNING[:common] + b"x" * 20_000, BEGINNING[:common] + b"y" * 20_000

    assert shared_levels(key(one), key(other)) == levels


def test_what_lies_behind_the_last_level_does_not_matter() -> None:
    assert shared_levels(key(BEGINNING), key(BEGINNING[: LEVELS[-1]] + b"x")) == DEEPEST


def test_prompts_for_different_models_share_nothing() -> None:
    assert shared_levels(key(b"a"), key(b"a", model=1)) == 0


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3), min_size=1, max_size=30))
def test_sorting_puts_equal_beginnings_together(prompts: list[bytes]) -> None:
    beginnings = [prompt * 700 for prompt in prompts]

    order = sorted(packed(prompt, start=place) for place, prompt in enumerate(beginnings))

    changes = sum(shared_levels(one[:KEY_BYTES], other[:KEY_BYTES]) < DEEPEST for one, other in pairwise(order))
    assert changes + 1 == len({key(prompt) for prompt in beginnings})


def test_equal_prompts_keep_the_order_of_the_file() -> None:
    order = sorted(packed(b"same", start=start) for start in (300, 5, 70_000))

    assert [read_record(record).start for record in order] == [5, 300, 70_000]


def test_a_record_is_read_as_it_was_written() -> None:
    record = read_record(pack_record(*sort_key(3, b"prompt"), 9, 2**40, 17, 2**33, 12, 6))

    assert (record.size, record.start, record.length, record.number) == (9, 2**40, 17, 2**33)
    assert (record.id_start, record.id_length) == (12, 6)
    assert record.key == key(b"prompt", model=3)


def test_records_that_stand_together_are_told_apart() -> None:
    records = [packed(b"a"), packed(b"b")]

    assert split_records(b"".join(records)) == records
    assert all(len(record) == RECORD_BYTES for record in records)


def test_the_mean_says_how_much_neighbours_share() -> None:
    same, other = packed(b"x" * 300 + b"a"), packed(b"x" * 300 + b"b")

    assert mean_sharing(pairwise([same, same, other])) == (DEEPEST + 2) / 2
    assert mean_sharing([]) == 0


@pytest.mark.parametrize(("length", "looked_at"), [(0, 0), (1, 0), (2, 1), (51, 50), (4_000, 3_999), (100_000, 5_000)])
def test_all_of_a_short_order_and_stretches_of_a_long_one_are_looked_at(length: int, looked_at: int) -> None:
    assert len(list(some_neighbours([b""] * length))) == looked_at
