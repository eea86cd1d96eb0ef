import asyncio
import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from slackwater.domain.errors import EngineUnreachable
from slackwater.logs import bound, configure

Lines = Callable[[], list[dict[str, Any]]]

_LOG = structlog.get_logger("slackwater.tests")
_ODD_TEXT = Path(__file__).parent / "odd_text.json"


def test_an_event_is_one_json_line_with_time_level_and_logger(lines: Lines) -> None:
    _LOG.info("batch planned", lines=12)

    (line,) = lines()
    assert list(line) == ["timestamp", "level", "event", "lines", "logger"]
    assert (line["level"], line["event"], line["lines"]) == ("info", "batch planned", 12)
    assert line["logger"] == "slackwater.tests"
    assert line["timestamp"].endswith("Z")


def test_bound_ids_are_on_every_line_inside_the_block_and_on_none_after(lines: Lines) -> None:
    with bound(request_id="req_1", batch_id="batch_2", chunk=3):
        _LOG.info("inside")
        logging.getLogger("some.library").warning("inside, too")
    _LOG.info("outside")

    inside, library, outside = lines()
    assert (inside["request_id"], inside["batch_id"], inside["chunk"]) == ("req_1", "batch_2", 3)
    assert library["batch_id"] == "batch_2"
    assert "worker" not in inside
    assert "batch_id" not in outside


async def test_ids_bound_in_one_task_are_not_on_the_lines_of_another(lines: Lines) -> None:
    async def work(batch_id: str) -> None:
        with bound(batch_id=batch_id):
            await asyncio.sleep(0)
            _LOG.info(batch_id)

    await asyncio.gather(work("batch_a"), work("batch_b"))

    assert all(line["batch_id"] == line["event"] for line in lines())


def test_context_of_the_process_is_on_every_line(restored: None) -> None:
    stream = io.StringIO()
    configure("info", stream=stream, terminal=False, context={"role": "control"})

    _LOG.info("hello")

    assert json.loads(stream.getvalue())["role"] == "control"


def test_a_librarys_log_line_is_json_as_well(lines: Lines) -> None:
    logging.getLogger("some.library").error("cannot open %s", "the door")

    (line,) = lines()
    assert (line["event"], line["level"], line["logger"]) == ("cannot open the door", "error", "some.library")


def test_lines_below_the_level_are_not_written(restored: None) -> None:
    stream = io.StringIO()
    configure("warning", stream=stream, terminal=False)

    _LOG.info("quiet")
    logging.getLogger("some.library").info("quiet, too")

    assert stream.getvalue() == ""


def test_libraries_that_log_requests_stay_quiet_even_at_debug(lines: Lines) -> None:
    for name in ("botocore.auth", "urllib3.connectionpool", "sqlalchemy.engine", "httpx2", "aiohttp.access"):
        logging.getLogger(name).info("parameters and signatures")

    assert lines() == []


def test_a_librarys_own_handlers_are_taken_off_and_it_is_heard(restored: None) -> None:
    own, ours = io.StringIO(), io.StringIO()
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(own))
    logging.getLogger("uvicorn.error").disabled = True

    configure("info", stream=ours, terminal=False)
    logging.getLogger("uvicorn.error").error("address in use")

    assert own.getvalue() == ""
    assert json.loads(ours.getvalue())["event"] == "address in use"


def test_an_unknown_level_is_refused(restored: None) -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure("loud", stream=io.StringIO(), terminal=False)


def test_configuring_again_does_not_double_the_lines(stream: io.StringIO) -> None:
    configure("info", stream=stream, terminal=False)

    _LOG.info("once")

    assert len(stream.getvalue().splitlines()) == 1


def test_text_from_outside_cannot_forge_a_line(stream: io.StringIO, lines: Lines) -> None:
    odd = json.loads(_ODD_TEXT.read_text())

    for text in odd:
        _LOG.info("file uploaded", filename=text, metadata={text: text})

    assert len(stream.getvalue().splitlines()) == len(stream.getvalue().split("\n")) - 1 == len(odd)
    assert [line["filename"] for line in lines()] == odd


def test_on_a_terminal_text_from_outside_cannot_forge_a_line_or_colour_it(restored: None) -> None:
    stream = io.StringIO()
    configure("info", stream=stream, terminal=True)
    odd = json.loads(_ODD_TEXT.read_text())
    _LOG.info("file uploaded", filename="plain.jsonl")
    plain_escapes = stream.getvalue().count("\x1b")

    for text in odd:
        stream.truncate(stream.seek(0))
        _LOG.info("file uploaded", filename=text)

        assert len(stream.getvalue().splitlines()) == 1, text
        assert stream.getvalue().count("\x1b") == plain_escapes, text


def _fail(message: str) -> None:
    local_marker = "local-marker"
    raise EngineUnreachable(message + local_marker[:0])


def test_an_error_is_one_field_with_cause_and_places_and_no_locals(stream: io.StringIO, lines: Lines) -> None:
    try:
        try:
            _fail("no connection")
        except EngineUnreachable as unreachable:
            raise RuntimeError("chunk failed") from unreachable
    except RuntimeError:
        _LOG.exception("work stopped")

    (line,) = lines()
    shown, cause = line["exception"].split(" caused by ")
    assert shown.startswith("RuntimeError: chunk failed @ logs/test_logs.py:")
    assert cause.startswith("EngineUnreachable: no connection @ logs/test_logs.py:")
    assert " _fail < logs/test_logs.py:" in cause
    assert "local-marker" not in stream.getvalue()
    assert "exc_info" not in line


def test_the_trace_of_one_error_is_shown_once(lines: Lines) -> None:
    try:
        _fail("engine died")
    except EngineUnreachable as error:
        for _ in range(3):
            _LOG.error("request lost", exc_info=error)
        logging.getLogger("some.library").exception("again")

    first, *others = (line["exception"] for line in lines())
    assert " @ " in first
    assert others == ["EngineUnreachable: engine died"] * 3


def test_a_group_of_errors_shows_its_first_members_in_the_same_line(lines: Lines) -> None:
    group = ExceptionGroup("tasks failed", [KeyError("a"), ValueError("b"), OSError("c"), OSError("d")])

    _LOG.error("stopped", exc_info=group)

    (line,) = lines()
    assert (
        line["exception"]
        == "ExceptionGroup: tasks failed (4 sub-exceptions) [KeyError: 'a'; ValueError: b; OSError: c]"
    )


def test_a_deep_chain_of_errors_ends(lines: Lines) -> None:
    error: Exception = ValueError("0")
    for depth in range(1, 50):
        above = ValueError(str(depth))
        above.__cause__ = error
        error = above

    _LOG.error("deep", exc_info=error)

    (line,) = lines()
    assert line["exception"] == (
        "ValueError: 49 caused by ValueError: 48 caused by ValueError: 47 caused by ValueError: 46 caused by …"
    )


def test_a_record_that_cannot_be_rendered_says_so_without_its_content(restored: None) -> None:
    stream = io.StringIO()
    configure("info", stream=stream, terminal=False)

    logging.getLogger("some.library").error("%d lines", "sk-slw-markermarkermarker")

    assert json.loads(stream.getvalue()) == {
        "event": "a log record could not be written",
        "level": "error",
        "logger": "some.library",
        "error": "TypeError",
    }


def test_a_closed_stream_stops_nobody(stream: io.StringIO) -> None:
    stream.close()

    _LOG.info("into the void")


def test_warnings_come_as_lines(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old habit", DeprecationWarning, stacklevel=1)

    (line,) = lines()
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")
    assert "old habit" in line["event"]


def test_an_uncaught_error_is_one_line(stream: io.StringIO, lines: Lines) -> None:
    error = RuntimeError("cannot reach postgresql://slackwater:db-marker-password@db/slackwater")

    sys.excepthook(RuntimeError, error, None)

    (line,) = lines()
    assert (line["level"], line["event"]) == ("critical", "uncaught error")
    assert "db-marker-password" not in stream.getvalue()


def test_an_interrupt_by_the_user_is_no_error(stream: io.StringIO) -> None:
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)

    assert stream.getvalue() == ""


def test_the_death_of_a_thread_is_one_line(lines: Lines) -> None:
    thread = threading.Thread(target=_fail, args=("thread failed",))
    threading.excepthook(threading.ExceptHookArgs((RuntimeError, RuntimeError("thread failed"), None, thread)))

    (line,) = lines()
    assert line["event"] == "a thread died"
    assert line["exception"] == "RuntimeError: thread failed"
