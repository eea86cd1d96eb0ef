"""The table of the engine's troubles in docs/reliability.md says what becomes of a line, of every fault."""

import re
from pathlib import Path
from typing import Final, get_args

import pytest

from slackwater.domain.errors import EngineBroke, EngineError, EngineReplyTooLarge, EngineTimeout, EngineWrongModel
from slackwater.domain.line_errors import ENGINE_KILLED, LineError
from slackwater.domain.outcomes import NO_ATTEMPTS, Retry, RetryPolicy, failure, success
from slackwater.domain.replies import Reply
from slackwater.inference.simulated_faults import FAULTS, BreakOff, Canned, Crash, Flood, HangUp, Silence, Trickle
from slackwater.metrics import EngineOutage

PAGE: Final = Path(__file__).parents[3] / "docs" / "reliability.md"
POLICY: Final = RetryPolicy()
PASSES: Final = {"503_then_ok"}
"""Faults that come only once."""


def rows() -> dict[str, tuple[str, str, str]]:
    """Class, what the customer sees, and the outage, by fault."""
    section = PAGE.read_text().partition("\n## The engine\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, str, str]] = {}
    for row in re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]:
        _, faults, kind, seen, outage = (cell.strip() for cell in row.split("|"))
        for fault in re.findall(r"`([^`]+)`", faults):
            assert fault not in found
            found[fault] = (kind, seen.strip("`"), outage)
    return found


def answer_of(name: str) -> Reply | EngineError:
    """What the service is told when it meets a fault."""
    match FAULTS[name]:
        case Canned(status=status, body=body):
            reply = Reply(status, body)
            done = success(reply)
            # All of the faults answer as `test-model`, where that is what they were asked for.
            return reply if done is None or done.model == "test-model" else EngineWrongModel("another model")
        case Silence() | Trickle():
            return EngineTimeout("late")
        case Flood():
            return EngineReplyTooLarge("large")
        case BreakOff() | HangUp() | Crash():
            return EngineBroke("broke")


def becomes(name: str) -> tuple[str, LineError]:
    """The class of a fault, and the error that a line ends with which always meets it."""
    if name == "crash":
        return "final", ENGINE_KILLED
    first = outcome = failure(answer_of(name), policy=POLICY, jitter=0.0)
    attempts = NO_ATTEMPTS
    while isinstance(outcome, Retry):
        attempts = attempts.after(outcome)
        outcome = failure(answer_of(name), policy=POLICY, jitter=0.0, attempts=attempts)
    if not isinstance(first, Retry):
        return "final", outcome.error
    return ("retried" if first.counts_against_line else "nobody's fault"), outcome.error


TROUBLES: Final = {name for name in FAULTS if success(answer_of(name)) is None} - PASSES


def test_every_fault_that_is_no_result_has_its_row_and_no_other() -> None:
    assert set(rows()) == TROUBLES


@pytest.mark.parametrize("name", sorted(TROUBLES))
def test_a_row_says_what_the_domain_does(name: str) -> None:
    kind, seen, outage = rows()[name]
    becoming, error = becomes(name)

    assert kind == becoming
    assert seen == (str(error.status) if error.status is not None else error.code)
    assert outage.strip("`") in {*get_args(EngineOutage), "not an outage"}
