import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from slackwater.cli.people_text import duration, moment, plain, size
from slackwater.cli.progress import Look, Pace, Progress, line
from slackwater.cli.progress_bar import batch_bar, upload_bar
from slackwater.cli.progress_display import Lines
from slackwater.client.replies import Batch, RequestCounts, Usage


def batch(
    done: int, *, total: int = 100, failed: int = 0, tokens: int | None = None, status: str = "in_progress"
) -> Batch:
    return Batch(
        id="batch_1",
        endpoint="/v1/chat/completions",
        input_file_id="file-1",
        completion_window="24h",
        status=status,
        created_at=0,
        request_counts=RequestCounts(total=total, completed=done - failed, failed=failed),
        usage=None if tokens is None else Usage(output_tokens=tokens),
    )


def after(*looks: tuple[float, Batch]) -> Progress:
    pace = Pace()
    for at_seconds, seen in looks:
        pace = pace.seen(seen, at_seconds)
    return pace.progress(looks[-1][1])


def test_one_look_has_no_speed() -> None:
    assert after((0.0, batch(5))) == Progress(status="in_progress", total=100, done=5, failed=0)


def test_speed_and_time_left_follow_from_two_looks() -> None:
    progress = after((10.0, batch(0, tokens=0)), (20.0, batch(20, failed=2, tokens=600)))
    assert (progress.requests_per_second, progress.tokens_per_second, progress.eta_seconds) == (2.0, 60.0, 40.0)
    assert progress.failed == 2


def test_time_spent_validating_is_not_counted() -> None:
    progress = after((0.0, batch(0, total=0, status="validating")), (100.0, batch(0)), (110.0, batch(10)))
    assert progress.requests_per_second == 1.0


def test_the_last_minute_counts_where_something_moved_in_it() -> None:
    progress = after((0.0, batch(0)), (100.0, batch(10)), (130.0, batch(40)))
    assert progress.requests_per_second == 1.0


def test_all_that_was_seen_counts_where_nothing_moved_for_a_minute() -> None:
    progress = after((0.0, batch(0)), (100.0, batch(50)), (200.0, batch(50)))
    assert (progress.requests_per_second, progress.eta_seconds) == (0.25, 200.0)


def test_nothing_done_means_no_time_left_is_told() -> None:
    assert after((0.0, batch(0)), (10.0, batch(0))).eta_seconds is None


def test_two_looks_at_one_moment_have_no_speed() -> None:
    assert after((5.0, batch(0)), (5.0, batch(9))).requests_per_second is None


def test_a_batch_that_is_being_finished_has_no_time_left() -> None:
    assert after((0.0, batch(0)), (10.0, batch(100, status="finalizing"))).eta_seconds is None


def test_without_usage_no_token_speed_is_told() -> None:
    assert after((0.0, batch(0)), (10.0, batch(10))).tokens_per_second is None


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10)), min_size=1, max_size=50))
def test_speed_is_never_negative_and_looks_do_not_pile_up(steps: list[tuple[float, int]]) -> None:
    pace, at_seconds, done = Pace(), 0.0, 0
    for step_seconds, more in steps:
        at_seconds, done = at_seconds + step_seconds, done + more
        pace = pace.seen(batch(done, total=1000), at_seconds)
    speed = pace.progress(batch(done, total=1000)).requests_per_second
    assert speed is None or speed >= 0
    assert all(at_seconds - look.at_seconds <= 60 for look in pace.looks[1:])


def test_looks_are_kept_for_a_minute_and_the_first_for_ever() -> None:
    pace = Pace(looks=(Look(at_seconds=0, done=0, output_tokens=0), Look(at_seconds=1, done=1, output_tokens=1)))
    assert [look.at_seconds for look in pace.seen(batch(5), 90.0).looks] == [0, 90.0]


def test_a_line_of_a_log_says_everything() -> None:
    progress = Progress(
        status="in_progress",
        total=5000,
        done=1234,
        failed=3,
        requests_per_second=12.34,
        tokens_per_second=1820.4,
        eta_seconds=305.0,
    )
    assert line(progress) == (
        "in_progress: 1,234/5,000 done, 3 failed, 12.3 requests/s, 1,820 tokens/s, about 5:05 left"
    )
    assert line(Progress(status="validating", total=0, done=0, failed=0)) == "validating: 0/0 done"


def test_a_log_gets_a_line_on_each_change_of_status_and_else_every_ten_seconds_of_movement() -> None:
    said: list[str] = []
    lines = Lines(said.append)
    for at_seconds, done, status in [
        (0.0, 0, "validating"),
        (1.0, 0, "in_progress"),
        (5.0, 10, "in_progress"),
        (11.5, 20, "in_progress"),
        (30.0, 20, "in_progress"),
        (31.0, 21, "in_progress"),
        (31.5, 21, "finalizing"),
    ]:
        lines.show(Progress(status=status, total=100, done=done, failed=0), at_seconds)
    lines.note("hm")
    assert said == [
        "validating: 0/100 done",
        "in_progress: 0/100 done",
        "in_progress: 20/100 done",
        "in_progress: 21/100 done",
        "finalizing: 21/100 done",
        "hm",
    ]


def test_the_bar_shows_the_same_on_a_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, color_system=None)
    with batch_bar(console) as bar:
        bar.show(Progress(status="validating", total=0, done=0, failed=0), 0.0)
        bar.show(
            Progress(status="in_progress", total=200, done=50, failed=2, requests_per_second=9.96, eta_seconds=15.0),
            1.0,
        )
        bar.note("away \x1b[2J[red]")
    shown = screen.getvalue()
    assert "in progress" in shown
    assert "50/200 done, 2 failed" in shown
    assert "10.0 requests/s, about 0:15 left" in shown
    assert "away \\x1b[2J[red]" in shown


def test_the_upload_bar_counts_bytes() -> None:
    screen = io.StringIO()
    with upload_bar(2_000_000, Console(file=screen, force_terminal=True, width=160, color_system=None)) as sent:
        sent(2_000_000)
    assert "2.0/2.0 MB" in screen.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (754, "12:34"), (11045, "3:04:05")])
def test_durations_are_written_as_clocks_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_960, "1.0 MB"),
        (93_000_000, "93.0 MB"),
        (10**12, "1000.0 GB"),
    ],
)
def test_sizes_are_written_in_powers_of_a_thousand(length: int, text: str) -> None:
    assert size(length) == text


def test_moments_are_utc() -> None:
    assert (moment(1_700_000_000), moment(None)) == ("2023-11-14 22:13", "")


@given(st.text())
def test_foreign_text_cannot_steer_the_terminal(text: str) -> None:
    shown = plain(text)
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown == text or not all(char.isprintable() or char == "\n" for char in text)
