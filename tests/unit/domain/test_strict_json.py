import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.domain.strict_json import BAD_JSON, MAX_DEPTH, decode, explain, repeated_key, too_deep

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def says(line: bytes) -> str:
    with pytest.raises(BAD_JSON) as caught:
        decode(line)
    return explain(line, caught.value).message


@settings(deadline=None)
@given(VALUES)
def test_what_json_can_write_is_read_without_loss(value: Any) -> None:
    assert decode(json.dumps(value).encode()) == value
    assert decode(json.dumps(value, ensure_ascii=False).encode()) == value


def strictly_read(line: bytes) -> bool:
    """Tell whether the standard library, made strict, takes a line."""

    def refuse(_: str) -> None:
        raise ValueError("not JSON")

    def finite(digits: str) -> float:
        value = float(digits)
        if value in {float("inf"), float("-inf")}:
            raise ValueError("out of range")
        return value

    try:
        json.dumps(json.loads(line.decode(), parse_constant=refuse, parse_float=finite), ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


def takes(line: bytes) -> bool:
    try:
        decode(line)
    except BAD_JSON:
        return False
    return True


@settings(deadline=None)
@given(
    VALUES, st.integers(0, 60), st.sampled_from([b"", b"}", b",", b'"', b"\\", b"NaN", b"1e999", b"\xff", b"\t", b"0"])
)
@example("\ud7ff", 0, b"")
def test_the_standard_library_made_strict_takes_the_same_lines(value: Any, place: int, damage: bytes) -> None:
    whole = json.dumps({"a": value}, ensure_ascii=False).encode()
    line = whole[:place] + damage + whole[place:]

    assert takes(line) == strictly_read(line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a": NaN}', "NaN and Infinity are not JSON"),
        (b'{"a": -Infinity}', "NaN and Infinity are not JSON"),
        (b'{"a": 1e400}', "too large"),
        (b'{"a": ' + b"7" * 5_000 + b"}", "too large"),
        (b'{"a": "\\ud83d"}', "surrogate pair"),
        (b'{"a": "\xe9"}', "byte 8 of this line is not"),
        (b'{"a": 1} {"b": 2}', "the second begins at character 10"),
        (b'{"a": ', "does not end on it"),
        (b'{"a": "x', "does not end on it"),
        (b'"x', "does not end on it"),
        (b'{"a": tru}', "at character 7"),
        (b'{"a": "\x01"}', "at character 8"),
        (nested(1_000_000), "deeper than 100 levels"),
    ],
)
def test_the_explanation_says_what_is_wrong(line: bytes, words: str) -> None:
    assert words in says(line)


def test_depth_that_only_the_explaining_reader_meets_is_depth() -> None:
    assert "deeper" in explain(b"[" * 100_000, ValueError()).message


@pytest.mark.parametrize("levels", [1, 2, 50, MAX_DEPTH])
def test_depth_up_to_the_limit_is_fine_and_one_more_is_not(levels: int) -> None:
    assert not too_deep(decode(nested(levels)), levels)
    assert too_deep(decode(nested(levels + 1)), levels)


def test_depth_counts_through_objects_and_text_has_none() -> None:
    assert too_deep(decode(b'{"a": [{"b": [1]}]}'), 3)
    assert not too_deep(decode(b'{"a": [{"b": "[[[["}]}'), 3)
    assert not too_deep("text", 0)
    assert not too_deep({}, 1)


TOP = {"custom_id": b"", "body": b""}
BODY = {"model": b""}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"custom_id": "a", "custom_id": "b"}', "custom_id"),
        (b'{"body": {}, "x": 1, "body": {"model": "m"}}', "body"),
        (b'{"body": {"model": "a", "model": "b"}}', "body.model"),
        (b'{"body": {"model": "a", "mod\\u0065l": "b"}}', "body.model"),
        (b'{"body": {"temperature": 1, "temperature": 2}}', None),
        (b'{"x": 1, "x": 2, "body": {"model": "a"}}', None),
        (b'{"body": {"x": {"model": 1, "model": 2}}}', None),
        (b'{"body": 5}', None),
    ],
)
def test_only_keys_that_steer_may_not_be_repeated_and_only_where_they_steer(line: bytes, key: str | None) -> None:
    assert repeated_key(line, top=TOP, body=BODY) == key
