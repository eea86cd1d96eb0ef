"""What follows from one answer: a result, another try, the line's own error, or the line back unrun."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.domain.errors import (
    EngineBroke,
    EngineError,
    EngineReplyTooLarge,
    EngineTimeout,
    EngineUnreachable,
    EngineWrongModel,
)
from slackwater.domain.line_errors import REPLY_TOO_LARGE, REQUEST_TIMEOUT
from slackwater.domain.outcomes import (
    NO_ATTEMPTS,
    Attempts,
    Dead,
    Done,
    Failure,
    Released,
    Retry,
    RetryPolicy,
    failure,
    is_doubtful,
    is_suspect,
    spared,
    success,
)
from slackwater.domain.replies import Reply
from slackwater.domain.usage import NO_USAGE, Usage

POLICY = RetryPolicy()
GOOD = b'{"id":"x","model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
WORKER_REPLIES = Path(__file__).parents[2] / "cases" / "inputs" / "w01_worker_replies.jsonl"


def after(answer: Reply | EngineError, *, attempts: Attempts = NO_ATTEMPTS, jitter: float = 0.0) -> Done | Failure:
    return success(answer) or failure(answer, policy=POLICY, jitter=jitter, attempts=attempts)


def to_the_end(answer: Reply | EngineError) -> tuple[Done | Failure, Attempts]:
    """Meet the same answer until something else than a retry follows."""
    attempts = NO_ATTEMPTS
    while isinstance(outcome := after(answer, attempts=attempts), Retry):
        attempts = attempts.after(outcome)
    return outcome, attempts


def test_a_good_reply_is_done_with_its_own_bytes() -> None:
    outcome = after(Reply(200, GOOD))

    assert outcome == Done(200, GOOD, Usage(1, 0, 1), "m", mended=False)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 422, 451])
def test_a_refusal_of_the_request_is_final(status: int) -> None:
    outcome = after(Reply(status, b'{"error":{"message":"no"}}', 5.0))

    assert isinstance(outcome, Dead)
    assert (outcome.error.status, outcome.error.message) == (status, "no")


@pytest.mark.parametrize("status", [408, 409, 425, 500, 501, 502, 504, 599])
def test_a_passing_fault_is_tried_five_times_in_all_and_then_the_lines_error(status: int) -> None:
    outcome, attempts = to_the_end(Reply(status, b""))

    assert isinstance(outcome, Dead)
    assert outcome.error.status == status
    assert outcome.error.message
    assert attempts == Attempts(counted=4, uncounted=0)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_full_engine_costs_the_line_nothing_but_its_patience_ends(status: int) -> None:
    outcome, attempts = to_the_end(Reply(status, b'{"error":{"message":"busy"}}'))

    assert isinstance(outcome, Dead)
    assert outcome.error.status == status
    assert attempts == Attempts(counted=0, uncounted=POLICY.max_uncounted_attempts - 1)


@pytest.mark.parametrize("status", [301, 304, 307, 308, 600])
def test_what_is_neither_result_nor_error_ends_as_an_unusable_reply(status: int) -> None:
    outcome, attempts = to_the_end(Reply(status, b""))

    assert isinstance(outcome, Dead)
    assert (outcome.error.status, outcome.error.code) == (None, "invalid_engine_reply")
    assert attempts.counted == 4


def test_retry_after_is_a_floor_with_a_little_spread() -> None:
    pauses = [after(Reply(429, b"", 20.0), jitter=jitter) for jitter in (0.0, 0.5, 0.999)]

    assert [pause.delay_seconds for pause in pauses if isinstance(pause, Retry)] == pytest.approx([20.0, 21.0, 21.998])


def test_retry_after_for_years_is_asked_again_after_two_minutes() -> None:
    outcome = after(Reply(429, b"", 3e9))

    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds == POLICY.longest_retry_after_seconds


def test_retry_after_never_shortens_the_backoff() -> None:
    outcome = after(Reply(503, b"", 0.1), attempts=Attempts(0, 5))

    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds == 16.0


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [after(Reply(429, b""), attempts=Attempts(0, past)) for past in range(9)]

    assert [pause.delay_seconds for pause in pauses if isinstance(pause, Retry)] == [
        0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0,
    ]  # fmt: skip


def test_an_engine_that_is_away_costs_nobody_an_attempt_and_then_gives_the_line_back() -> None:
    outcome, attempts = to_the_end(EngineUnreachable("away"))

    assert isinstance(outcome, Released)
    assert outcome.error.message == "away"
    assert attempts == Attempts(counted=0, uncounted=POLICY.max_uncounted_attempts - 1)


def test_a_connection_that_breaks_while_the_engine_lives_is_counted_and_ends_as_the_line_s_error() -> None:
    outcome, attempts = to_the_end(EngineBroke("broke"))

    assert isinstance(outcome, Dead)
    assert (outcome.error.code, attempts.counted) == ("engine_unreachable", 4)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (EngineUnreachable("refused"), (True, False)),
        (EngineBroke("broke"), (True, True)),
        (Reply(500, b""), (True, True)),
        (Reply(200, b'{"error":{"message":"boom"}}'), (True, True)),
        (Reply(200, b'{"error":{"message":"busy","code":503}}'), (False, False)),
        (Reply(200, b"<html>"), (True, False)),
        (Reply(307, b""), (True, False)),
        (Reply(404, b""), (True, False)),
        (Reply(401, b""), (True, False)),
        (Reply(503, b""), (False, False)),
        (Reply(429, b""), (False, False)),
        (Reply(400, b""), (False, False)),
        (EngineTimeout("late"), (True, True)),
        (EngineWrongModel("other"), (True, False)),
        (EngineReplyTooLarge("large"), (True, False)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, EngineError) else None,
)
def test_an_answer_that_may_say_more_of_the_engine_than_of_the_line_is_told(
    answer: Reply | EngineError, told: tuple[bool, bool]
) -> None:
    assert (is_doubtful(answer, policy=POLICY), is_suspect(answer)) == told


def test_a_full_engine_is_in_doubt_where_the_line_would_end_of_it() -> None:
    last = Attempts(0, POLICY.max_uncounted_attempts - 1)

    assert is_doubtful(Reply(429, b""), policy=POLICY, attempts=last)
    assert not is_doubtful(Reply(429, b""), policy=POLICY, attempts=Attempts(0, POLICY.max_uncounted_attempts - 2))


@pytest.mark.parametrize("answer", [Reply(500, b'{"error":"boom"}'), EngineBroke("broke"), EngineTimeout("late")])
def test_an_ill_engine_costs_the_line_no_attempt_until_patience_ends(answer: Reply | EngineError) -> None:
    attempts = NO_ATTEMPTS
    while isinstance(outcome := spared(answer, policy=POLICY, jitter=0.0, attempts=attempts), Retry):
        attempts = attempts.after(outcome)

    assert attempts == Attempts(0, POLICY.max_uncounted_attempts - 1)
    assert outcome == Dead(to_the_end(answer)[0].error)  # type: ignore[union-attr]  # such an answer is no Done


def test_an_answer_of_another_model_is_counted_and_ends_as_an_unusable_reply() -> None:
    outcome, attempts = to_the_end(EngineWrongModel("another model"))

    assert isinstance(outcome, Dead)
    assert (outcome.error.code, outcome.error.message, attempts.counted) == ("invalid_engine_reply", "another model", 4)


def test_no_answer_in_time_is_counted_and_ends_as_a_timeout() -> None:
    outcome, attempts = to_the_end(EngineTimeout("late"))

    assert outcome == Dead(REQUEST_TIMEOUT)
    assert attempts.counted == 4


def test_an_answer_that_is_too_large_is_not_asked_for_again() -> None:
    assert after(EngineReplyTooLarge("large")) == Dead(REPLY_TOO_LARGE)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", GOOD[:-1], b"\x00"])
def test_a_success_without_a_json_object_is_tried_again_and_then_an_error_without_status(body: bytes) -> None:
    outcome, attempts = to_the_end(Reply(200, body))

    assert isinstance(outcome, Dead)
    assert (outcome.error.status, outcome.error.code) == (None, "invalid_engine_reply")
    assert attempts.counted == 4


@pytest.mark.parametrize(
    ("body", "status", "tries"),
    [
        (b'{"error":{"message":"boom","code":500}}', 500, 5),
        (b'{"error":"boom"}', 500, 5),
        (b'{"error":{"message":"boom","code":400}}', 400, 1),
        (b'{"object":"error","message":"boom","code":404}', 404, 1),
    ],
)
def test_an_error_body_with_200_ends_as_the_status_it_names(body: bytes, status: int, tries: int) -> None:
    outcome, attempts = to_the_end(Reply(200, body))

    assert isinstance(outcome, Dead)
    assert (outcome.error.status, outcome.error.message) == (status, "boom")
    assert attempts.counted + 1 == tries


def test_a_retry_carries_the_error_the_line_would_end_with() -> None:
    outcome = after(Reply(500, b'{"error":{"message":"boom"}}'))

    assert isinstance(outcome, Retry)
    assert (outcome.error.status, outcome.error.message, outcome.counts_against_line) == (500, "boom", True)


@given(
    st.integers(100, 999),
    st.binary(max_size=30),
    st.none() | st.floats(0, 1e12),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_any_answer_has_an_outcome_and_any_pause_is_bounded(
    status: int, body: bytes, retry_after: float | None, jitter: float, counted: int, uncounted: int
) -> None:
    outcome = after(Reply(status, body, retry_after), attempts=Attempts(counted, uncounted), jitter=jitter)

    if isinstance(outcome, Retry):
        assert 0 < outcome.delay_seconds <= POLICY.longest_retry_after_seconds * 1.1
        assert (counted < POLICY.max_attempts) if outcome.counts_against_line else True


CASES = {case["name"]: case for case in map(json.loads, WORKER_REPLIES.read_bytes().splitlines())}
CASES["latin1_bytes"]["raw_body"] = CASES["good"]["raw_body"].encode().replace(b'"hi"', b'"\xe9"')


def reply_of(name: str) -> Reply:
    case: dict[str, Any] = CASES[name]
    body = case["raw_body"] if isinstance(case["raw_body"], bytes) else case["raw_body"].encode()
    # The adapter reads the header; a date without the reply's own date is ignored.
    pause = case["headers"].get("retry-after", "")
    return Reply(case["status"], body, float(pause) if pause.isdecimal() else None)


AS_THEY_ARE = (
    "good",
    "nul_in_text",
    "u2028_in_text",
    "newline_in_text",
    "empty_choices",
    "null_content",
    "wrong_model_echo",
    "no_usage",
)
MENDED = {
    "nan_logprob": '"logprob":null',
    "minus_inf_logprob": '"logprob":null',
    "lone_surrogate": "bad \ufffd half",
    "latin1_bytes": "\ufffd",
}
FAULTS: dict[str, tuple[int | None, int]] = {
    "error_body_with_200": (500, 5),
    "object_error_400": (400, 1),
    "truncated_json": (None, 5),
    "html_502": (502, 5),
    "empty_500": (500, 5),
    "redirect": (None, 5),
}
FULL = {"429_retry_after_2": 2.0, "429_retry_after_date": 0.25, "503_then_ok": 0.25}
ON_THE_WIRE = {"close_mid_body", "never_answers"}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_w01_replies_that_are_json_pass_as_they_are(name: str) -> None:
    outcome = after(reply_of(name))

    assert isinstance(outcome, Done)
    assert outcome.body == reply_of(name).body
    assert outcome.usage == (NO_USAGE if name == "no_usage" else Usage(1, 0, 1))
    assert outcome.model == ("something-else" if name == "wrong_model_echo" else "test-model")


@pytest.mark.parametrize(("name", "text"), MENDED.items())
def test_w01_replies_that_are_no_json_are_mended(name: str, text: str) -> None:
    outcome = after(reply_of(name))

    assert isinstance(outcome, Done)
    assert outcome.mended
    assert text in outcome.body.decode()
    json.loads(outcome.body, parse_constant=pytest.fail)


@pytest.mark.parametrize(("name", "ending"), FAULTS.items())
def test_w01_faults_end_as_error_lines_with_a_message(name: str, ending: tuple[int | None, int]) -> None:
    outcome, attempts = to_the_end(reply_of(name))

    assert isinstance(outcome, Dead)
    assert (outcome.error.status, attempts.counted + 1) == ending
    assert outcome.error.message
    assert attempts.uncounted == 0


@pytest.mark.parametrize(("name", "least_seconds"), FULL.items())
def test_w01_full_engines_are_waited_for_at_no_cost(name: str, least_seconds: float) -> None:
    outcome = after(reply_of(name), jitter=0.999)

    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds >= least_seconds
    assert not outcome.counts_against_line


def test_every_w01_reply_is_tested_here_or_on_the_wire() -> None:
    assert {*AS_THEY_ARE, *MENDED, *FAULTS, *FULL} | ON_THE_WIRE == set(CASES)
