"""Completion windows."""

import re
from datetime import timedelta

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.domain.errors import BadRequest
from slackwater.flow.intake import BatchRules, completion_window

RULES = BatchRules(shortest_window=timedelta(hours=1), longest_window=timedelta(days=7))


@given(st.integers(1, 168))
def test_every_number_of_hours_up_to_a_week_is_a_window(hours: int) -> None:
    assert completion_window(f"{hours}h", RULES) == timedelta(hours=hours)


@given(st.integers(1, 7))
def test_every_number_of_days_up_to_seven_is_a_window(days: int) -> None:
    assert completion_window(f"{days}d", RULES) == timedelta(days=days)


@given(st.text(max_size=8))
def test_anything_else_is_refused_by_name(text: str) -> None:
    hypothesis.assume(re.fullmatch("[1-9][0-9]*[hd]", text) is None)

    with pytest.raises(BadRequest) as refused:
        completion_window(text, RULES)
    assert refused.value.param == "completion_window"


def test_the_refusal_says_what_this_service_supports() -> None:
    narrow = BatchRules(shortest_window=timedelta(hours=24), longest_window=timedelta(hours=36))

    with pytest.raises(BadRequest, match="from '24h' to '36h'"):
        completion_window("7d", narrow)
