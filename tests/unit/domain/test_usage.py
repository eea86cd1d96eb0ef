"""Usage is read from every dialect, and never costs a result."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.usage import NO_USAGE, Usage, UsageDetails, UsageFields, usage_of, usage_of_value

CHAT = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
RESPONSES = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 27,
}
MESSAGES = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 1,
    "cache_read_input_tokens": 16,
    "output_tokens": 7,
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
EMBEDDINGS = {"prompt_tokens": 20, "total_tokens": 20}


@pytest.mark.parametrize(
    ("reported", "read"),
    [
        (CHAT, Usage(20, 16, 7, 5)),
        (RESPONSES, Usage(20, 16, 7, 5)),
        (MESSAGES, Usage(20, 16, 7, 0)),
        (EMBEDDINGS, Usage(20, 0, 0, 0)),
        ({"prompt_tokens": 20, "completion_tokens": 0, "prompt_tokens_details": None}, Usage(20)),
        ({"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": None}}, Usage(4)),
        ({}, NO_USAGE),
    ],
)
def test_every_dialect_of_usage_reads_the_same_by_either_way(reported: dict[str, object], read: Usage) -> None:
    assert usage_of(msgspec.convert(reported, UsageFields)) == read
    assert usage_of_value(reported) == read


def test_no_usage_is_zero() -> None:
    assert usage_of(None) == NO_USAGE == Usage(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("reported", "read"),
    [
        (None, NO_USAGE),
        ("a lot", NO_USAGE),
        ([1, 2], NO_USAGE),
        ({"prompt_tokens": 12.0, "completion_tokens": "7"}, Usage(12)),
        ({"prompt_tokens": -1, "completion_tokens": 2**41}, NO_USAGE),
        ({"prompt_tokens": True, "completion_tokens": 3}, Usage(0, 0, 3)),
        ({"prompt_tokens": 4, "prompt_tokens_details": "none"}, Usage(4)),
        ({"prompt_tokens": 4, "prompt_tokens_details": {"cached_tokens": "2"}}, Usage(4)),
    ],
)
def test_what_cannot_be_read_counts_as_zero(reported: object, read: Usage) -> None:
    assert usage_of_value(reported) == read


def test_usage_adds_up_field_by_field() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(UsageFields.__struct_fields__),
        SCALARS | st.dictionaries(st.sampled_from(UsageDetails.__struct_fields__), SCALARS),
    )
)
def test_no_usage_whatever_raises_or_goes_below_zero(reported: object) -> None:
    read = usage_of_value(reported)

    assert min(read.input_tokens, read.cached_tokens, read.output_tokens, read.reasoning_tokens) >= 0
