"""The service as a state machine: customers, stages, workers and failures in any order, on a real database and store.

The same examples run each time, so that a failure is one of the change at hand. ``SLACKWATER_MODEL_EXAMPLES`` asks for
so many others, new ones each time (``make model``). A failure is shrunk to the shortest steps that show it.

``asked`` is the customers' view; ``customers``, ``controls``, ``workers`` and ``turns`` are the steps; ``crossings`` is
where processes die, fail and freeze; ``oracle`` is what must hold after each step, ``ending`` what must in the end.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from slackwater.domain.states import TERMINAL
from tests.model.ending import Ending
from tests.model.world import Grounds

_POINTS = 5
"""At how many points each kind of mishap must have happened at the least."""
_EXAMPLES = os.environ.get("SLACKWATER_MODEL_EXAMPLES")
_SETTINGS = settings(
    max_examples=int(_EXAMPLES or 30),
    stateful_step_count=35,
    derandomize=_EXAMPLES is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
    print_blob=True,
)


@pytest.fixture
def grounds(database_url: str, tmp_path: Path) -> Iterator[Grounds]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    shared = Grounds(database_url, tmp_path)
    try:
        yield shared
    finally:
        shared.close()
        structlog.reset_defaults()


def test_whatever_happens_between_any_two_changes_every_line_has_one_result(grounds: Grounds) -> None:
    class Service(Ending):
        pass

    Service.grounds = grounds

    run_state_machine_as_test(Service, settings=_SETTINGS)

    # Examples in which nothing ends and nothing goes wrong would prove nothing.
    assert grounds.tally.keys() >= TERMINAL
    kinds = Counter(what.split()[0] for what in grounds.tally)
    assert min(kinds["dies"], kinds["fails"], kinds["freezes"]) >= _POINTS, grounds.tally
