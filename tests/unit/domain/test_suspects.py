"""One line that kills the engine is found in few deaths, and nobody else is ever blamed."""

import math

from hypothesis import given
from hypothesis import strategies as st

from slackwater.domain.suspects import next_trial, verdict


class Engine:
    """Dies whenever a poisonous line reaches it; of those running with it, the slow ones are still at it."""

    def __init__(self, poison: set[int], quick: set[int]) -> None:
        self.poison, self.quick = poison, quick
        self.deaths = self.rounds = 0

    def run(self, lines: tuple[int, ...]) -> set[int]:
        """Return the lines at the engine when it died; none where it lives."""
        self.rounds += 1
        if not self.poison & set(lines):
            return set()
        self.deaths += 1
        return {line for line in lines if line in self.poison or line not in self.quick}


def inquest(engine: Engine, suspects: set[int]) -> tuple[set[int], set[int]]:
    """Try suspects until there are none; returns who was found guilty and who was cleared without an answer."""
    guilty: set[int] = set()
    cleared: set[int] = set()
    left, half = sorted(suspects), True
    while left:
        trial = next_trial(left, half=half)
        killed = engine.run(trial.running)
        outcome = verdict(trial, killed)
        assert set(outcome.suspects) | set(outcome.cleared) | {outcome.guilty} >= killed
        cleared |= set(outcome.cleared)
        if outcome.guilty is not None:
            guilty.add(outcome.guilty)
        left, half = list(outcome.suspects), bool(killed)
    return guilty, cleared


@given(st.integers(1, 1000), st.data())
def test_one_poisonous_line_costs_at_most_log2_deaths_and_two(n: int, data: st.DataObject) -> None:
    poison = data.draw(st.integers(0, n - 1))
    engine = Engine({poison}, data.draw(st.sets(st.integers(0, n - 1))))

    guilty, _ = inquest(engine, set(range(n)))

    assert guilty == {poison}
    # The death that made them suspects counts, too.
    assert 1 + engine.deaths <= math.ceil(math.log2(n)) + 2


@given(st.integers(1, 1000))
def test_an_outage_without_a_culprit_costs_two_rounds(n: int) -> None:
    engine = Engine(set(), set())

    assert inquest(engine, set(range(n))) == (set(), set())
    assert engine.rounds <= 2


@given(st.sets(st.integers(0, 63), min_size=1, max_size=64), st.data())
def test_of_several_poisonous_lines_only_they_are_ever_blamed(suspects: set[int], data: st.DataObject) -> None:
    poison = data.draw(st.sets(st.sampled_from(sorted(suspects)), max_size=5))
    left, found = set(suspects), set[int]()
    for _ in range(len(poison) + 1):
        # Cleared lines run with everybody else; one among them that kills the engine again begins another inquest.
        guilty, cleared = inquest(Engine(poison - found, set()), left)
        found |= guilty
        left = cleared
    assert found == poison
