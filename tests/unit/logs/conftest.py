"""A process whose logs can be read, put back afterwards as they were."""

import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from slackwater.logs import configure

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def restored() -> Iterator[None]:
    """Undo what ``configure`` does to the process."""
    root = logging.getLogger()
    level = root.level
    levels = {name: logging.getLogger(name).level for name in logging.root.manager.loggerDict}
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    logging.captureWarnings(capture=False)
    # Only ours: the test runner adds and removes its own around each phase of a test.
    root.handlers[:] = [handler for handler in root.handlers if not type(handler).__module__.startswith("slackwater")]
    root.setLevel(level)
    for name in logging.root.manager.loggerDict:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))
    sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


@pytest.fixture
def stream(restored: None) -> io.StringIO:
    """Receive what the process logs, as JSON from ``debug`` up, with one secret known by value."""
    stream = io.StringIO()
    configure("debug", stream=stream, terminal=False, secrets=["s3-marker-secret", "short"])
    return stream


@pytest.fixture
def lines(stream: io.StringIO) -> Lines:
    """Read what was logged so far."""
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
