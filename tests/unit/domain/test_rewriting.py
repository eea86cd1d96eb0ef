"""What the service sets in a request body, and that every other byte stays the customer's."""

import json

import pytest

from slackwater.domain.request_lines import custom_ids, request_lines
from slackwater.domain.rewriting import names_operator_keys, operator_prefix, rewrite_body

BODY = b'{"model": "m",  "messages": [1.50, "\\u0041"]}'
OURS = operator_prefix(priority=100, cache_salt="t")


def test_a_body_that_needs_nothing_comes_back_as_it_was() -> None:
    assert rewrite_body(BODY, model=None, prefix=b"", strip=False) is BODY


def test_the_operators_keys_are_put_before_the_customers_bytes() -> None:
    assert rewrite_body(BODY, model=None, prefix=OURS, strip=False) == b'{"priority":100,"cache_salt":"t",' + BODY[1:]


@pytest.mark.parametrize("prefix", [b"", OURS])
def test_a_customers_operator_keys_are_stripped(prefix: bytes) -> None:
    body = b'{"priority": -5, "model": "m", "cache_salt": "theirs", "n": 1.50}'
    assert names_operator_keys(body)
    sent = rewrite_body(body, model=None, prefix=prefix, strip=True)
    assert b"1.50" in sent
    ours = {"priority": 100, "cache_salt": "t"} if prefix else {}
    assert json.loads(sent) == {**ours, "model": "m", "n": 1.5}


def test_an_operator_key_inside_a_message_stays() -> None:
    body = b'{"model":"m","messages":[{"content":"{\\"priority\\": 1}","priority":1}]}'
    assert json.loads(rewrite_body(body, model=None, prefix=b"", strip=True)) == json.loads(body)


def test_an_alias_is_replaced_by_the_served_name() -> None:
    sent = rewrite_body(BODY, model=b'"served"', prefix=OURS, strip=False)
    assert json.loads(sent) == {"priority": 100, "cache_salt": "t", "model": "served", "messages": [1.5, "A"]}
    assert b"1.50" in sent


def test_a_body_of_nothing_but_an_operator_key_stays_an_object() -> None:
    assert json.loads(rewrite_body(b'{"priority":1,"model":"m"}', model=None, prefix=b"", strip=True)) == {"model": "m"}


def test_a_chunk_is_split_on_line_feeds_only() -> None:
    source = b'\xef\xbb\xbf{"custom_id":"a","body":{}}\r\n\n \r\n{"custom_id":"b\xe2\x80\xa8","body":{"x":1}}'
    lines = request_lines(source, at_start=True)
    assert [(bytes(line.custom_id), bytes(line.body)) for line in lines] == [
        (b'"a"', b"{}"),
        (b'"b\xe2\x80\xa8"', b'{"x":1}'),
    ]
    assert custom_ids(source, at_start=True) == [b'"a"', b'"b\xe2\x80\xa8"']


def test_a_byte_order_mark_is_dropped_only_where_an_object_begins() -> None:
    assert custom_ids(b'{"custom_id":"a"}\n', at_start=False) == [b'"a"']
