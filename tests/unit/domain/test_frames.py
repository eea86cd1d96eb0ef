"""The fast lane: whatever it takes, the long way would have taken too, and found the same."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.bodies import BodyRules
from slackwater.domain.endpoints import ENDPOINTS
from slackwater.domain.frames import _CONTENT_MARK, _ID_MARK
from slackwater.domain.limits import InputLimits
from slackwater.domain.line_checks import LineChecker
from slackwater.domain.records import read_record
from slackwater.domain.tally import Tally
from slackwater.domain.verdicts import Accepted
from tests.planning import CHAT, MODELS, fed, jsonl, request, scan_of, scanned

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
CONTENTS = st.one_of(
    TEXT,
    TEXT.map(lambda text: [{"type": "text", "text": text}]),
    st.just([{"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}]),
    st.integers(),
    st.none(),
)
CUSTOM_IDS = st.one_of(TEXT, st.just("x" * 600), st.just('a","stream":true,"b":"'), st.integers(0, 99).map(str))


def raw_line(custom_id: bytes, content: bytes, *, tail: bytes = b', "max_tokens": 8}}') -> bytes:
    return (
        b'{"custom_id": "%b", "method": "POST", "url": "/v1/chat/completions", '
        b'"body": {"model": "test-model", "messages": %b%b'
    ) % (custom_id, content, tail)


PLAIN = b'[{"role": "user", "content": "hi"}]'


def outcome(data: bytes, **settings: Any) -> tuple[list[tuple[int, int, int, bytes]], list[bytes], int]:
    scan, found = scanned(data, tolerant=True, **settings)
    records = [read_record(packed) for packed in found.records]
    return (
        [(record.number, record.start, record.length, record.key) for record in records],
        found.error_lines,
        scan.tally.accepted_bytes,
    )


def slowly(lines: Iterable[bytes]) -> tuple[list[tuple[int, int, int, bytes]], list[bytes], int]:
    """Scan lines with no lane ever open."""
    scan = scan_of(tolerant=True)
    scan._checker._frames_left = -(1 << 60)
    found = fed(scan, b"".join(line + b"\n" for line in lines))
    records = [read_record(packed) for packed in found.records]
    return (
        [(record.number, record.start, record.length, record.key) for record in records],
        found.error_lines,
        scan.tally.accepted_bytes,
    )


@settings(deadline=None)
@given(st.lists(st.tuples(CUSTOM_IDS, CONTENTS, st.sampled_from([8, 16, 10**6])), max_size=20))
def test_the_fast_lane_finds_what_the_long_way_finds(lines: list[tuple[str, Any, int]]) -> None:
    good = request("first", "hi", max_tokens=8)
    data = jsonl(good, *(request(custom_id, content, max_tokens=most) for custom_id, content, most in lines))

    assert outcome(data) == slowly(data.split(b"\n")[:-1])


HOSTILE = {
    "ends its string": (b'x", "custom_id": "y', PLAIN),
    "escape": (b"a\\u0041", PLAIN),
    "escaped quote": (b'a\\"b', PLAIN),
    "control character": (b"a\x01b", PLAIN),
    "no UTF-8": (b"\xe9", PLAIN),
    "empty": (b"", PLAIN),
    "second key behind the prompt": (b"x", PLAIN + b', "messages": ' + PLAIN),
    "streaming behind the prompt": (b"x", PLAIN + b', "stream": true'),
    "prompt cut short": (b"x", PLAIN[:-1]),
    "no prompt": (b"x", b""),
    "lone surrogate": (b"x", b'[{"role": "user", "content": "\\ud83d"}]'),
    "no UTF-8 in the prompt": (b"x", b'[{"role": "user", "content": "\xe9"}]'),
    "middle twice": (
        b'x", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "test-model", "messages": ' + PLAIN,
        PLAIN,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_fills_the_holes_with_more_than_they_are_for_goes_the_long_way(name: str) -> None:
    lines = [raw_line(b"first", PLAIN), raw_line(*HOSTILE[name]), raw_line(b"last", PLAIN)]

    assert outcome(b"\n".join(lines)) == slowly(lines)


def fast_lines(data: bytes, **settings: Any) -> int:
    scan, _ = scanned(data, **settings)
    return scan._checker.fast_lines


def test_lines_alike_but_for_id_and_prompt_go_the_fast_way() -> None:
    data = jsonl(*(request(f"id-{number}", f"prompt {number}") for number in range(100)))

    assert fast_lines(data) == 99


@pytest.mark.parametrize(
    ("endpoint", "key", "prompt"),
    [
        ("/v1/completions", "prompt", "text {}"),
        ("/v1/embeddings", "input", "text {}"),
        ("/v1/responses", "input", [{"role": "user", "content": "{}"}]),
    ],
)
def test_every_endpoint_has_a_fast_way(endpoint: str, key: str, prompt: Any) -> None:
    def body(number: int) -> dict[str, Any]:
        return {"model": "test-model", key: json.loads(json.dumps(prompt).replace("{}", str(number)))}

    lines = [{"custom_id": str(n), "method": "POST", "url": endpoint, "body": body(n)} for n in range(20)]

    assert fast_lines(jsonl(*lines), endpoint=endpoint) == 19


def test_tools_before_the_prompt_are_part_of_what_is_hashed() -> None:
    def data(tool: str) -> bytes:
        tools = [{"type": "function", "function": {"name": tool}}]
        return jsonl(*(request(f"{number}", "same", tools=tools) for number in range(3)))

    one, other = outcome(data("a"))[0], outcome(data("b"))[0]

    assert {record[3] for record in one} == {one[0][3]}
    assert one[0][3] != other[0][3]


def test_a_file_that_alternates_between_shapes_goes_the_fast_way() -> None:
    lines = [request(f"{n}", "hi", max_tokens=8 + n % 3) for n in range(60)]

    assert fast_lines(jsonl(*lines)) == 57


def test_a_file_whose_lines_are_all_different_hardly_tries_the_fast_way() -> None:
    scan, _ = scanned(jsonl(*(request(f"{n}", "hi", seed=n) for n in range(1_000))))

    assert scan._checker.fast_lines == 0
    assert len(scan._checker.lanes) <= 1


def test_a_file_that_becomes_regular_goes_the_fast_way_from_there_on() -> None:
    odd = [request(f"{n}", "hi", seed=n) for n in range(150)]
    regular = [request(f"r{n}", "hi") for n in range(1_000)]

    assert fast_lines(jsonl(*odd, *regular)) > 900


def test_lines_that_are_all_different_do_not_keep_the_regular_ones_between_them_from_the_fast_way() -> None:
    odd = [request(f"{n}", "hi", seed=n) for n in range(250)]
    regular = [request(f"r{n}", "hi") for n in range(500)]
    mixed = [
        line for one, two, three in zip(odd, regular[::2], regular[1::2], strict=True) for line in (one, two, three)
    ]

    assert fast_lines(jsonl(*mixed)) > 450


def test_longer_lines_than_the_model_surely_holds_go_the_long_way() -> None:
    scan, _ = scanned(jsonl(request("a", model="small"), request("b", "x" * 70_000, model="small")))

    assert scan._checker.fast_lines == 0


@pytest.mark.parametrize(
    "line",
    [
        # The prompt before the id, an id that is not written as it would be, marks that stand in the line already.
        b'{"body": {"model": "test-model", "messages": []}, "custom_id": "a", "method": "POST", "url": "%b"}'
        % CHAT.encode(),
        raw_line(b"a\\u0062", PLAIN),
        raw_line(_ID_MARK.encode(), PLAIN),
        raw_line(b"x", json.dumps(_CONTENT_MARK).encode()),
        b'{"user": "a", ' + raw_line(b"a", PLAIN)[1:],
        raw_line(b"a", b"[ ]", tail=b', "nested": {"messages": 1}}}'),
        raw_line(b"1", b"1"),
        raw_line(b"a", b"[]", tail=b', "user": "messages"}}').replace(
            b'"messages": []', b'"user": "messages", "x": 10, "messages": 1'
        ),
    ],
)
def test_a_frame_whose_holes_are_not_proven_is_not_used(line: bytes) -> None:
    checker = LineChecker(
        endpoint=ENDPOINTS["/v1/chat/completions"], models=MODELS, rules=BodyRules(), limits=InputLimits()
    )
    verdict = checker.check(line)

    assert isinstance(verdict, Accepted)
    for run in checker.lanes:
        # A lane that was opened all the same must read its own line as the long way did.
        tally = Tally()
        assert run(line, iter(()), tally) in {None, line}
        assert tally.custom_ids in ([], [verdict.custom_id.encode()])
