import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.calls import Reply
from slackwater.client.errors import NotFound, ServiceFailed, ServiceUnreachable
from slackwater.client.polling import Polling
from slackwater.client.retrying import Retries, retry_after_seconds

NO_ANSWER = ServiceUnreachable("no connection")


def reply(status: int, **headers: str) -> Reply:
    return Reply(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=b"")


def pause(outcome: Reply | ServiceUnreachable, *, attempt: int = 0, repeatable: bool = True) -> float | None:
    return Retries(max_retries=2, jitter=lambda: 0.0).pause_seconds(attempt, outcome, repeatable=repeatable)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_go_through_later_is_sent_again(status: int) -> None:
    assert pause(reply(status)) == 0.5


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 403, 404, 413, 422])
def test_what_would_be_answered_the_same_is_not_sent_again(status: int) -> None:
    assert pause(reply(status)) is None


def test_a_broken_connection_is_tried_again_after_growing_pauses() -> None:
    assert [pause(NO_ANSWER, attempt=attempt) for attempt in range(3)] == [0.5, 1.0, None]


def test_a_body_that_can_be_read_once_is_not_sent_twice() -> None:
    assert pause(NO_ANSWER, repeatable=False) is None


def test_the_service_has_the_last_word_on_retries() -> None:
    assert pause(reply(409, x_should_retry="false")) is None
    assert pause(reply(400, x_should_retry="true")) == 0.5


def test_the_services_pause_is_kept() -> None:
    assert pause(reply(429, retry_after="7")) == 7.0
    assert pause(reply(429, retry_after="7", retry_after_ms="1500")) == 1.5


def test_a_pause_of_zero_is_no_reason_to_hammer() -> None:
    assert pause(reply(429, retry_after="0")) == 0.5


def test_a_service_that_asks_for_more_than_two_minutes_is_not_waited_for() -> None:
    assert pause(reply(429, retry_after="120")) == 120.0
    assert pause(reply(429, retry_after="121")) is None


def test_a_date_is_measured_by_the_services_own_clock() -> None:
    headers = {"retry-after": "Sun, 29 Nov 2026 10:00:09 GMT", "date": "Sun, 29 Nov 2026 10:00:00 GMT"}
    assert retry_after_seconds(headers) == 9.0
    assert retry_after_seconds({**headers, "date": "Sun, 29 Nov 2026 11:00:00 GMT"}) == 0.0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"retry-after": ""},
        {"retry-after": "soon"},
        {"retry-after": "-3"},
        {"retry-after": "nan"},
        {"retry-after": "inf"},
        {"retry-after": "Sun, 29 Nov 2026 10:00:09 GMT"},
        {"retry-after": "Sun, 29 Nov 2026 10:00:09", "date": "Sun, 29 Nov 2026 10:00:00 GMT"},
    ],
)
def test_a_pause_that_cannot_be_read_is_none(headers: dict[str, str]) -> None:
    assert retry_after_seconds(headers) is None


@given(attempt=st.integers(0, 10_000), jitter=st.floats(0, 1))
def test_a_backoff_is_never_too_short_or_too_long(attempt: int, jitter: float) -> None:
    seconds = Retries(jitter=lambda: jitter).backoff_seconds(attempt)
    assert 0.375 <= seconds <= 8.0


@given(looks=st.integers(0, 10_000), interval=st.floats(0.05, 3600))
def test_a_watch_looks_quickly_at_first_and_then_at_its_interval(looks: int, interval: float) -> None:
    polling = Polling(interval_seconds=interval)
    assert polling.pause_seconds(looks) <= interval
    assert polling.pause_seconds(0) <= 0.2
    assert polling.pause_seconds(100_000) == interval


def test_a_watch_waits_as_long_as_the_service_asks() -> None:
    assert Polling(interval_seconds=2.0).pause_seconds(50, asked_seconds=30.0) == 30.0


def test_a_watch_outlives_an_outage_but_not_a_refusal() -> None:
    polling = Polling(interval_seconds=2.0, patience=3)
    failed = ServiceFailed("down", status=503)
    assert [polling.outage_pause_seconds(failed, missed) for missed in range(1, 5)] == [2.0, 4.0, 8.0, None]
    assert polling.outage_pause_seconds(NO_ANSWER, 1) == 2.0
    assert polling.outage_pause_seconds(NotFound("gone", status=404), 1) is None
