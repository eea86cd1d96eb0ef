import dataclasses
import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.cutting import Cut, CutRules, Cutter, Workload, full_chunk, is_one_chunk
from slackwater.domain.records import KEY_BYTES

RULES = CutRules()
OTHER = b"\0\0" + bytes(16)


def workload(n_lines: int, *, line_bytes: int = 500, seconds: float | None = None, workers: int = 1) -> Workload:
    return Workload(n_lines=n_lines, n_bytes=n_lines * line_bytes, seconds_per_line=seconds, live_workers=workers)


def group_key(group: int) -> bytes:
    """A key that shares all with its own group and only the model with others."""
    return b"\0\0" + group.to_bytes(4, "big") * 4


def cut(
    lengths: list[int], rules: CutRules, load: Workload, groups: list[int] | None = None
) -> tuple[list[Cut], list[int]]:
    cutter = Cutter(rules, load)
    position, seqs = 0, []
    for place, length in enumerate(lengths):
        seqs.append(cutter.add(position, length, group_key(groups[place]) if groups else OTHER))
        position += length
    cutter.split()
    return cutter.cuts, seqs


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5_000), min_size=1, max_size=400),
    st.lists(st.integers(0, 3), min_size=400, max_size=400),
    st.sampled_from([None, 0.0001, 0.05, 1.0, 100.0]),
    st.integers(0, 20),
    st.sampled_from([2_000, 20_000, 10**6]),
)
def test_every_line_is_in_one_chunk_and_the_bounds_hold(
    lengths: list[int], groups: list[int], seconds: float | None, workers: int, max_bytes: int
) -> None:
    rules = dataclasses.replace(RULES, max_bytes=max_bytes)
    load = Workload(n_lines=len(lengths), n_bytes=sum(lengths), seconds_per_line=seconds, live_workers=workers)

    cuts, seqs = cut(lengths, rules, load, sorted(groups)[: len(lengths)])

    assert [one.seq for one in cuts] == list(range(len(cuts)))
    assert [seq for one in cuts for seq in [one.seq] * one.n_requests] == seqs
    position = 0
    for one in cuts:
        assert one.byte_start == position
        position += one.byte_length
        assert one.byte_length <= max_bytes or one.n_requests == 1
        assert one.n_requests <= full_chunk(rules, load) or one.n_requests <= rules.min_requests
    assert position == sum(lengths)
    # Only bytes and the end make a chunk smaller than the least.
    for one, following in pairwise(cuts):
        assert one.n_requests >= rules.min_requests or one.byte_length + following.byte_length > max_bytes


@settings(deadline=None)
@given(st.integers(1, 50_000), st.sampled_from([None, 0.001, 0.2, 3.0]), st.integers(0, 200))
def test_a_full_chunk_is_the_smallest_of_its_bounds_but_never_tiny(
    n_lines: int, seconds: float | None, workers: int
) -> None:
    load = workload(n_lines, seconds=seconds, workers=workers)

    full = full_chunk(RULES, load)

    share = math.ceil(n_lines / max(10, 4 * workers))
    timely = RULES.unlearnt_requests if seconds is None else math.floor(RULES.target_seconds / seconds)
    most = max(RULES.min_requests, min(1_000, share, timely))
    assert full <= most
    assert math.ceil(n_lines / full) == math.ceil(n_lines / most)


def sizes(n_lines: int, **load: float) -> list[int]:
    cuts, _ = cut([500] * n_lines, RULES, workload(n_lines, **load))  # type: ignore[arg-type]  # by name
    return [one.n_requests for one in cuts]


def test_until_the_speed_is_learnt_a_chunk_has_a_hundred_lines() -> None:
    assert sizes(2_000) == [100] * 20


def test_a_slow_model_has_small_chunks_and_a_fast_one_large_ones() -> None:
    assert max(sizes(20_000, seconds=1.0)) == 90
    assert max(sizes(20_000, seconds=0.001)) == 1_000


def test_many_workers_all_have_something_to_do() -> None:
    assert len(sizes(6_400, seconds=0.01, workers=20)) >= 80


def test_the_end_of_a_batch_is_cut_small() -> None:
    small = [size for size in sizes(20_000, seconds=0.001) if size <= 100]

    assert 900 <= sum(small) <= 2_000
    assert sizes(20_000, seconds=0.001)[-1] <= 100


def test_a_remainder_is_spread_and_not_left_over() -> None:
    assert sizes(1_010)[:3] == [92, 92, 92]


def test_a_chunk_rather_ends_with_a_group_of_like_prompts() -> None:
    # Groups of 45: a full chunk of 100 would cut the third in two, two groups are three quarters of it and more.
    cuts, _ = cut([500] * 2_000, RULES, workload(2_000), [place // 45 for place in range(2_000)])

    assert [one.n_requests for one in cuts[:3]] == [90, 90, 90]


def test_prompts_that_share_nothing_are_no_groups() -> None:
    cuts, _ = cut([500] * 2_000, RULES, workload(2_000), list(range(2_000)))

    assert [one.n_requests for one in cuts[:3]] == [100, 100, 100]


def test_a_long_line_is_a_chunk_of_its_own() -> None:
    rules = dataclasses.replace(RULES, max_bytes=1_000)

    cuts, _ = cut([10, 5_000, 10], rules, workload(3))

    assert [one.byte_length for one in cuts] == [10, 5_000, 10]


def test_a_chunk_is_not_tiny_however_dear_its_first_lines_are() -> None:
    lengths = [50_000] * 3 + [10] * 1_000
    load = Workload(n_lines=len(lengths), n_bytes=sum(lengths), seconds_per_line=1.0, live_workers=1)

    cuts, _ = cut(lengths, RULES, load)

    assert cuts[0].n_requests == RULES.min_requests


def test_long_lines_cost_more_than_short_ones() -> None:
    cuts, _ = cut(
        [100] * 500 + [10_000] * 500,
        RULES,
        Workload(n_lines=1_000, n_bytes=5_050_000, seconds_per_line=1.2, live_workers=0),
    )

    # 75 lines of the mean length take 90 seconds: bytes end the chunks of long lines before that, and not the others.
    assert (cuts[0].n_requests, cuts[-3].n_requests) == (72, 50)
    assert all(one.cost_seconds <= 90 for one in cuts)


def test_costs_add_up_to_the_learnt_time_of_all_lines() -> None:
    cuts, _ = cut([500] * 3_000, RULES, workload(3_000, seconds=0.3))

    assert math.isclose(sum(one.cost_seconds for one in cuts), 900)


def test_bytes_between_two_lines_belong_to_their_chunk_and_between_chunks_to_none() -> None:
    cutter = Cutter(RULES, workload(3))
    cutter.add(3, 10, OTHER)
    cutter.add(20, 10, OTHER)
    cutter.split()
    cutter.add(50, 10, OTHER)
    cutter.split()
    cutter.split()

    assert [(one.byte_start, one.byte_length) for one in cutter.cuts] == [(3, 27), (50, 10)]


def test_numbers_may_begin_anywhere() -> None:
    cutter = Cutter(RULES, workload(1), first_seq=7)

    assert cutter.add(0, 10, OTHER) == 7


def test_few_lines_are_one_chunk() -> None:
    assert is_one_chunk(RULES, workload(16))
    assert not is_one_chunk(RULES, workload(17))
    assert not is_one_chunk(RULES, workload(2, line_bytes=20 << 20))
    assert sizes(16) == [16]
    assert len(OTHER) == KEY_BYTES


def test_a_workload_of_nothing_is_cut_into_nothing() -> None:
    assert sizes(0) == []
