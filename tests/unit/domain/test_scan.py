"""The pass as a whole: limits, places, what is said of each line."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.domain.limits import InputLimits
from slackwater.domain.records import read_record
from slackwater.domain.scan import FIRST_REFUSED_NUMBER
from tests.planning import jsonl, lines_of, request, scanned

GOOD = request("good")
LINES = st.sampled_from(
    [
        json.dumps(GOOD).encode(),
        json.dumps(request("é", "text")).encode(),
        json.dumps(request("t", max_tokens=10**9)).encode(),
        json.dumps(request("s", stream=True)).encode(),
        b"  " + json.dumps(request("w")).encode() + b" \r",
        b"",
        b"\t \r",
        b"no json",
        b"{",
        b"}",
        b'"x"',
        b"x" * 300,
        b" " * 300,
        b" " * 200 + json.dumps(GOOD).encode(),
        b"\xff",
    ]
)


@settings(deadline=None)
@given(
    lines=st.lists(LINES, max_size=15),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    tolerant=st.booleans(),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    end=st.sampled_from([b"", b"\n"]),
)
def test_the_result_does_not_depend_on_how_the_file_is_cut(
    *, lines: list[bytes], sizes: list[int], tolerant: bool, mark: bytes, end: bytes
) -> None:
    data = mark + b"\n".join(lines) + end
    limits = InputLimits(max_lines=10, max_line_bytes=250)
    whole_scan, whole = scanned(data, tolerant=tolerant, limits=limits)

    scan, found = scanned(data, *sizes, tolerant=tolerant, limits=limits)

    assert found == whole
    assert scan.errors.entries() == whole_scan.errors.entries()
    assert scan.stopped == whole_scan.stopped
    assert scan.seen.repeated()[1] == whole_scan.seen.repeated()[1]


@settings(deadline=None)
@given(st.lists(LINES, max_size=30))
def test_every_request_is_run_or_answered_or_fails_the_batch(lines: list[bytes]) -> None:
    scan, found = scanned(b"\n".join(lines), tolerant=True)

    requests = sum(1 for line in lines if line.strip())
    assert len(found.records) + len(found.error_lines) + len(scan.errors) == max(requests, 1)
    assert scan.tally.n_accepted.total() == len(found.records)
    assert len(found.refused_records) == scan.n_refused == len(found.error_lines)


def test_records_give_the_place_of_a_line_without_what_surrounds_it() -> None:
    one, other = jsonl(request("one"))[:-1], jsonl(request("other"))[:-1]
    data = b"\xef\xbb\xbf" + one + b"\r\n\r\n \t" + other + b"  \n"

    _, found = scanned(data)

    records = [read_record(packed) for packed in found.records]
    assert [data[record.start : record.start + record.length] for record in records] == [one, other]
    assert [record.number for record in records] == [1, 3]
    ids = [data[record.start + record.id_start :][: record.id_length] for record in records]
    assert ids == [b'"one"', b'"other"']


def test_a_custom_id_that_is_written_with_escapes_has_no_place() -> None:
    _, found = scanned(jsonl(request("é")))

    assert read_record(found.records[0]).id_length == 0


@pytest.mark.parametrize("sizes", [(), (100,)])
def test_one_line_more_than_allowed_fails_the_batch_and_ends_the_reading(sizes: tuple[int, ...]) -> None:
    data = jsonl(*(request(f"{number}") for number in range(20)))

    scan, found = scanned(data, *sizes, limits=InputLimits(max_lines=5))

    assert len(found.records) == 5
    (error,) = scan.errors.entries()
    assert (error.code, error.line) == ("too_many_tasks", 6)
    assert "more than 5 requests" in error.message
    assert scan.stopped


def test_as_many_lines_as_allowed_are_fine_and_blank_ones_do_not_count() -> None:
    data = b"\n\n".join(jsonl(request(f"{number}"))[:-1] for number in range(5))

    scan, found = scanned(data, limits=InputLimits(max_lines=5))

    assert len(found.records) == 5
    assert not scan.stopped


@pytest.mark.parametrize("length", [2_000, 2_000_000])
@pytest.mark.parametrize("block", [1 << 20, 700])
def test_a_line_that_is_too_long_is_one_bad_line_with_its_length(length: int, block: int) -> None:
    data = jsonl(request("a"), request("b", "x" * length), request("c"))

    scan, found = scanned(data, block, limits=InputLimits(max_line_bytes=1_000))

    (error,) = scan.errors.entries()
    assert (error.code, error.line) == ("line_too_long", 2)
    assert f"has {len(jsonl(request('b', 'x' * length))) - 1} bytes; at most 1000" in error.message
    assert [read_record(packed).number for packed in found.records] == [1, 3]


def test_a_blank_line_that_is_too_long_is_a_blank_line() -> None:
    scan, found = scanned(jsonl(request("a")) + b" " * 5_000 + b"\n", 700, limits=InputLimits(max_line_bytes=1_000))

    assert len(found.records) == 1
    assert not scan.errors.entries()


def inputs(*contents: Any) -> bytes:
    bodies = [{"model": "embedder", "input": content} for content in contents]
    return jsonl(
        *(
            {"custom_id": str(n), "method": "POST", "url": "/v1/embeddings", "body": body}
            for n, body in enumerate(bodies)
        )
    )


@pytest.mark.parametrize(
    ("contents", "fits"),
    [
        ((["a", "b"], ["c", "d"]), True),
        ((["a", "b"], ["c", "d"], "e"), False),
        ((["a"] * 5,), False),
        (([1, 2, 3, 4, 5], [6]), True),
        (([[1], [2], [3]], [[1], [2]]), False),
        (([], "", "a"), True),
    ],
)
def test_all_inputs_of_a_batch_of_embeddings_are_counted(*, contents: tuple[Any, ...], fits: bool) -> None:
    limits = InputLimits(max_embedding_inputs=4)

    scan, _ = scanned(inputs(*contents), endpoint="/v1/embeddings", limits=limits)

    assert [error.code for error in scan.errors.entries()] == ([] if fits else ["too_many_tasks"])
    assert scan.stopped is not fits


def test_an_alias_is_its_model_and_the_name_of_the_batch() -> None:
    scan, _ = scanned(jsonl(request("a", model="alias"), request("b", model="alias")))

    assert scan.models == ["test-model"]
    assert scan.asked_model == "alias"


def test_an_alias_and_its_model_are_one_model_but_no_one_name() -> None:
    scan, _ = scanned(jsonl(request("a", model="alias"), request("b")))

    assert scan.errors.entries() == []
    assert scan.asked_model is None


def test_a_file_of_no_known_model_names_none() -> None:
    scan, _ = scanned(jsonl(request("a", model="gone")))

    assert (scan.models, scan.asked_model) == ([], None)


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        (request("a", model="embedder"), "model_not_found", "body.model"),
        (request("a", model=5), "invalid_request", "body.model"),
        (request("a", url="/v1/embeddings"), "invalid_url", "url"),
        ({**request("a"), "url": 5}, "invalid_url", "url"),
        ({**request("a"), "method": 5}, "invalid_method", "method"),
        ({**request("a"), "method": None}, "invalid_method", "method"),
        ({**request("a"), "custom_id": 1.5}, "invalid_custom_id", "custom_id"),
        ({**request("a"), "custom_id": False}, "invalid_custom_id", "custom_id"),
        ({**request("a"), "custom_id": {}}, "invalid_custom_id", "custom_id"),
        ({**request("a"), "body": []}, "invalid_request", "body"),
        (request("a", x=json.loads("[" * 98 + "]" * 98)), None, None),
        (request("a", x=json.loads("[" * 99 + "]" * 99)), "invalid_json_line", None),
        (request("a", "[[[[" * 100), None, None),
    ],
)
def test_a_line_is_judged(line: dict[str, Any], code: str | None, param: str | None) -> None:
    scan, _ = scanned(jsonl(line))

    assert [(error.code, error.param) for error in scan.errors.entries()] == ([(code, param)] if code else [])


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"custom_id":"a","custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{"model":"test-model"}}',
         "custom_id"),
        (b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"x","model":"test-model"}}',
         "body.model"),
        (b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"test-model","n":1,"n":2}}',
         None),
        (b'{"custom_id":"model","method":"POST","url":"/v1/chat/completions","body":{"model":"test-model"}}', None),
    ],
)  # fmt: skip
def test_a_key_that_steers_stands_once(raw: bytes, param: str | None) -> None:
    scan, _ = scanned(raw)

    assert [error.param for error in scan.errors.entries()] == ([param] if param else [])
    assert all("more than once" in error.message for error in scan.errors.entries())


@pytest.mark.parametrize("body", [b'{"mod\\u0065l":"test-model"}', b'{"model":"test-model","\\u0070riority":1}'])
def test_a_key_that_steers_is_not_written_with_escapes(body: bytes) -> None:
    scan, _ = scanned(b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":%b}' % body)

    (error,) = scan.errors.entries()
    assert "with escapes" in error.message


def test_a_refused_line_is_answered_as_its_dialect_has_it() -> None:
    scan, found = scanned(jsonl(request("a"), request("fits not", max_tokens=10**9)))

    (answer,) = lines_of(found)
    assert (answer.custom_id, answer.status, answer.param) == ("fits not", 400, "max_tokens")
    assert "32768 tokens" in answer.message
    assert scan.errors.entries() == []
    assert dict(scan.refusals) == {"context_length_exceeded": 1}
    assert f"batch_req_{'0' * 24}{FIRST_REFUSED_NUMBER:08x}".encode() in found.error_lines[0]


def test_an_invalid_line_is_answered_with_the_status_it_would_have_alone() -> None:
    _, found = scanned(jsonl(request("a", model="gone"), {"custom_id": 5}, request("s", stream=True)), tolerant=True)

    assert [(answer.custom_id, answer.status) for answer in lines_of(found)] == [("a", 404), (None, 400), ("s", 400)]


def test_the_ids_of_lines_that_do_not_run_are_compared_too() -> None:
    scan, _ = scanned(jsonl(request("a"), request("a", stream=True), request("a", max_tokens=10**9)), tolerant=True)

    assert scan.seen.repeated()[1] == 2
