"""What is read from a reply that claims success: strict JSON, one line for every reader, or nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.replies import one_line, parse_leniently, read_object
from slackwater.domain.usage import NO_USAGE, Usage

GOOD = b'{"id":"x","model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def test_a_good_reply_keeps_its_own_bytes() -> None:
    reading = read_object(GOOD)

    assert reading is not None
    assert reading.body is GOOD
    assert (reading.usage, reading.model, reading.is_error, reading.mended) == (Usage(3, 0, 2), "m", False, False)


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (b'{"a": 1}\n', b'{"a":1}'),
        (b'{\r\n  "a": [1,\r\n 2]\r\n}', b'{"a":[1,2]}'),
        ('{"a":"x\u2028y\u2029z\u0085"}'.encode(), b'{"a":"x\\u2028y\\u2029z\\u0085"}'),
        ('{"\u2028":"é"}'.encode(), '{"\\u2028":"é"}'.encode()),
        (b'{"a":"\\u0000\\n\\r\\u2028"}', b'{"a":"\\u0000\\n\\r\\u2028"}'),
    ],
)
def test_layout_goes_and_line_ends_of_any_reader_are_escaped(body: bytes, written: bytes) -> None:
    reading = read_object(body)

    assert reading is not None
    assert (reading.body, reading.mended) == (written, False)


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (b'{"logprob":NaN,"low":-Infinity,"high":1e400}', {"logprob": None, "low": None, "high": None}),
        (b'{"text":"bad \\ud83d half"}', {"text": "bad \ufffd half"}),
        (b'{"text":"\\ud83d\\ude00 \\ud83d"}', {"text": "\U0001f600 \ufffd"}),
        (b'{"text":"caf\xe9"}', {"text": "caf\ufffd"}),
        (b'{"\xe9":1}', {"\ufffd": 1}),
        (b'{"text":"raw\x01control\n"}', {"text": "raw\x01control\n"}),
        (b'\xef\xbb\xbf{"text":"after a mark"}', {"text": "after a mark"}),
    ],
)
def test_what_is_not_json_is_mended_where_its_meaning_is_plain(body: bytes, written: dict[str, object]) -> None:
    reading = read_object(body)

    assert reading is not None
    assert reading.mended
    assert json.loads(reading.body.decode()) == written
    assert len(reading.body.decode().splitlines()) == 1


def test_a_mended_reply_keeps_its_usage_and_model() -> None:
    reading = read_object(GOOD.replace(b'"choices":[]', b'"choices":[NaN]'))

    assert reading is not None
    assert (reading.usage, reading.model, reading.mended) == (Usage(3, 0, 2), "m", True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"[NaN]",
        b'"text"',
        b"<html></html>",
        b'{"a":1',
        b'{"a":1} {"b":2}',
        b"\x00\xff",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"usage":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"usage":[],"a":' + b"1" * 5_000 + b"}",
    ],
)
def test_what_is_no_json_object_is_unreadable(body: bytes) -> None:
    assert read_object(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage":"much","model":"m"}',
        b'{"usage":{"prompt_tokens":"3"},"model":"m"}',
        b'{"usage":[],"model":"m"}',
    ],
)
def test_odd_usage_costs_no_result(body: bytes) -> None:
    reading = read_object(body)

    assert reading is not None
    assert (reading.body, reading.usage, reading.model, reading.mended) == (body, NO_USAGE, "m", False)


def test_a_model_of_another_type_reads_as_none() -> None:
    reading = read_object(b'{"model":7,"usage":{"prompt_tokens":3}}')

    assert reading is not None
    assert (reading.model, reading.usage, reading.is_error) == (None, Usage(3), False)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"boom"}}',
        b'{"error":"boom"}',
        b'{"object":"error","message":"boom"}',
        b'{"object":"response","status":"failed","error":{"code":"server_error"}}',
        b'{"object":"error","message":"boom","usage":1}',
        b'{"error":"boom","x":NaN}',
    ],
)
def test_an_error_object_is_known_whatever_its_status(body: bytes) -> None:
    reading = read_object(body)

    assert reading is not None
    assert reading.is_error


def test_a_null_error_is_none() -> None:
    reading = read_object(b'{"object":"response","error":null}')

    assert reading is not None
    assert not reading.is_error


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4), st.sampled_from([None, 2]))
def test_any_json_object_comes_back_equal_and_on_one_line(value: dict[str, object], indent: int | None) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=False).encode()

    reading = read_object(body)

    assert reading is not None
    assert json.loads(reading.body) == value
    assert len(reading.body.decode().splitlines()) == 1
    assert not reading.mended


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: f'{{"a":"{text}"}}'.encode()))
def test_any_bytes_are_read_as_strict_json_or_not_at_all(body: bytes) -> None:
    reading = read_object(body)

    if reading is not None:
        assert isinstance(json.loads(reading.body.decode(), parse_constant=pytest.fail), dict)
        assert len(reading.body.decode().splitlines()) == 1


def test_one_line_leaves_ascii_alone() -> None:
    body = b'{"a":"b"}'

    assert one_line(body) is body


def test_lenient_parsing_gives_objects_only() -> None:
    assert parse_leniently(b' {"a":1}\n') == {"a": 1}
    assert parse_leniently(b"[1]") is None
    assert parse_leniently(b"{") is None
