"""Errors in one line: what was raised, where, and what caused it. No locals, no source lines, once per error."""

import sys
import traceback
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from structlog.typing import EventDict, WrappedLogger

from slackwater.logs.redaction import cut_at_blank

_MAX_MESSAGE: Final = 1000
_MAX_FRAMES: Final = 12
_MAX_CAUSES: Final = 4
_MAX_SIBLINGS: Final = 3
_SHOWN: Final = "_slackwater_trace_shown"


def add_trace(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Replace ``exc_info`` by a text field ``exception``; an error that was shown before comes without its frames."""
    error = _error(event.pop("exc_info", None))
    if error is not None:
        event["exception"] = " caused by ".join(_chain(error))
    return event


def _error(exc_info: object) -> BaseException | None:
    match exc_info:
        case BaseException():
            return exc_info
        case (_, BaseException() as error, _):
            return error
        case True:
            return sys.exception()
        case _:
            return None


def _chain(error: BaseException) -> Iterator[str]:
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        yield _describe(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    if current is not None:
        yield "…"


def _describe(error: BaseException) -> str:
    """Name the error, its message and its frames, innermost first; of a group the first few members, too."""
    message = cut_at_blank(str(error), _MAX_MESSAGE)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    if not vars(error).get(_SHOWN):
        vars(error)[_SHOWN] = True
        # Not walk_tb alone: the line number of a generator's frame moves on; extract_tb reads it from the trace.
        frames = traceback.extract_tb(error.__traceback__)[::-1]
        places = [f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[:_MAX_FRAMES]]
        if len(frames) > _MAX_FRAMES:
            places.append(f"{len(frames) - _MAX_FRAMES} more")
        text = f"{text} @ {' < '.join(places)}" if places else text
    if isinstance(error, BaseExceptionGroup):
        members = "; ".join(_describe(member) for member in error.exceptions[:_MAX_SIBLINGS])
        text = f"{text} [{members}]"
    return text


def _short(path: str) -> str:
    return "/".join(PurePath(path).parts[-2:])
