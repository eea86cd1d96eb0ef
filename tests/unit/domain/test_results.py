"""Result lines: the OpenAI dialect's form, byte for byte one line each."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.domain.line_errors import BATCH_CANCELLED, BATCH_EXPIRED, REQUEST_TIMEOUT, LineError, refused
from slackwater.domain.outcomes import Done
from slackwater.domain.results import OpenAIDialect, json_string, line_id_prefix
from slackwater.domain.usage import NO_USAGE

GOLDEN = json.loads((Path(__file__).parents[2] / "cases" / "golden.json").read_text())
PREFIX = "0123456789abcdef01234567"
DIALECT = OpenAIDialect(id_prefix=PREFIX)


def done(body: bytes, *, status: int = 200, model: str | None = None) -> Done:
    return Done(status, body, NO_USAGE, model, mended=False)


def test_a_success_has_the_golden_form() -> None:
    line = DIALECT.success(255, b'"a"', done(b'{"id":"chatcmpl-1"}'))

    assert line == (
        b'{"id":"batch_req_0123456789abcdef01234567000000ff","custom_id":"a","response":{"status_code":200,'
        b'"request_id":"req_0123456789abcdef01234567000000ff","body":{"id":"chatcmpl-1"}},"error":null}\n'
    )
    assert same_form(line, GOLDEN["line_ok"])


def test_an_http_error_has_the_golden_form() -> None:
    line = DIALECT.failure(2, b'"b"', refused("bad", param="model"))

    assert same_form(line, GOLDEN["line_http_error"])


def test_a_line_that_never_ran_has_the_golden_form() -> None:
    line = DIALECT.failure(3, b'"c"', BATCH_EXPIRED)

    assert same_form(line, GOLDEN["line_expired"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BATCH_EXPIRED, "batch_expired"),
        (BATCH_CANCELLED, "batch_cancelled"),
        (REQUEST_TIMEOUT, "request_timeout"),
    ],
)
def test_a_line_without_an_answer_tells_why(error: LineError, code: str) -> None:
    line = json.loads(DIALECT.failure(1, b'"a"', error))

    assert line["response"] is None
    assert line["error"] == {"code": code, "message": error.message}


def test_the_status_of_the_reply_is_the_lines() -> None:
    assert json.loads(DIALECT.success(1, b'"a"', done(b"{}", status=201)))["response"]["status_code"] == 201


def test_a_custom_id_comes_back_exactly_and_escaped() -> None:
    line = DIALECT.success(1, '"é\u2028\\n\\u0000 %d %b"'.encode(), done(b"{}"))

    assert json.loads(line)["custom_id"] == "é\u2028\n\0 %d %b"
    assert len(line.decode().splitlines()) == 1


@given(st.text(), st.text(min_size=1), st.integers(0, 2**32 - 1))
def test_any_text_gives_one_physical_line(custom_id: str, message: str, number: int) -> None:
    literal = json_string(custom_id)
    for line in (
        DIALECT.success(number, literal, done(json.dumps({"a": message}).encode())),
        DIALECT.failure(number, literal, LineError(status=500, message=message)),
        DIALECT.failure(number, literal, LineError(status=None, message=message, code="x")),
    ):
        assert line.endswith(b"\n")
        assert len(line.decode().splitlines()) == 1
        assert json.loads(line)["custom_id"] == custom_id


def test_a_reply_is_written_under_the_name_that_was_asked_for() -> None:
    dialect = OpenAIDialect(id_prefix=PREFIX, model_alias=("served", 'asked "é"'))
    body = b'{"id":1e2,"model":"served","choices":[{"text":"\\"model\\":\\"served\\"","model":"served"}]}'

    line = dialect.success(1, b'"a"', done(body, model="served"))

    assert b'"id":1e2,' in line
    written = json.loads(line)["response"]["body"]
    assert written["model"] == 'asked "é"'
    assert written["choices"] == json.loads(body)["choices"]


def test_a_reply_of_another_model_keeps_its_name() -> None:
    dialect = OpenAIDialect(id_prefix=PREFIX, model_alias=("served", "asked"))

    line = dialect.success(1, b'"a"', done(b'{"model":"other"}', model="other"))

    assert json.loads(line)["response"]["body"] == {"model": "other"}


@pytest.mark.parametrize("prefix", ["", "0123", "%d" * 12, "0123456789ABCDEF01234567"])
def test_a_prefix_that_is_no_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="24 hex digits"):
        OpenAIDialect(id_prefix=prefix)


def test_lines_of_two_batches_have_different_ids() -> None:
    prefixes = {line_id_prefix(f"batch_{digits}") for digits in ("0" * 31 + "1", "0" * 31 + "2")}

    assert len(prefixes) == 2
    assert all(OpenAIDialect(id_prefix=prefix) for prefix in prefixes)


def same_form(line: bytes, golden: object) -> bool:
    """Whether the line has the golden one's keys, in its order, and its values but for the ids."""
    return shape(json.loads(line)) == shape(golden)


def shape(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return [(key, "an id" if key in {"id", "request_id"} else shape(inner)) for key, inner in value.items()]
