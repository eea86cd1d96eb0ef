"""Quiet days, and turns: one process goes on where another one stood still, and that one wakes.

Single steps in any order come to such a place too seldom, so these are steps of their own, each of several.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.model.asked import KINDS, Kind
from tests.model.controls import mishaps
from tests.model.crossings import Mishap
from tests.model.oracle import Oracle

_LONGER_THAN_A_LEASE: Final = timedelta(seconds=40)
_LONGER_THAN_A_CLAIM: Final = timedelta(seconds=70)


class Turns(Oracle):
    """Steps of several."""

    @initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=4, max_size=9).map(tuple), steps=st.integers(1, 5))
    def begins(self, kinds: tuple[Kind, ...], steps: int) -> None:
        """Nothing happens to nobody: each example begins with a batch, and more or less of it is done."""
        self.submits(kinds, None, "error", "24h", None)
        self.do(*self._day(lines=3, mishap=None)[:steps])

    @rule(mishap=mishaps, lines=st.integers(min_value=1, max_value=9))
    def everything_goes_its_way(self, mishap: Mishap | None, lines: int) -> None:
        """As on a quiet day, with one mishap of a worker."""
        self.do(*self._day(lines=lines, mishap=mishap))

    @rule(
        lines=st.integers(min_value=1, max_value=9),
        late=st.sampled_from(["commit", "keep", "stop"]),
        first=st.booleans(),
    )
    def a_lease_passes_on(self, lines: int, late: str, *, first: bool) -> None:
        """A worker does not beat for too long; before or after another has done a part of its chunk it comes back."""
        late_one = (lambda: self.worker_works(0, lines, late, None),)
        other = (lambda: self.worker_works(1, 2, "keep", None), lambda: self.worker_works(1, 9, "commit", None))
        self.do(
            lambda: self.leads(0, 6, None),
            lambda: self.worker_obeys(0, None),
            lambda: self.worker_works(0, 1, "keep", None),
            lambda: self.run(self.pass_time(_LONGER_THAN_A_LEASE)),
            lambda: self.worker_obeys(1, None),
            lambda: self.leads(0, 11, None),
            lambda: self.worker_obeys(1, None),
            *(late_one + other if first else other[:1] + late_one + other[1:]),
        )

    @rule(stage=st.sampled_from(["plan", "finish"]), crossing=st.integers(min_value=0, max_value=9), both=st.booleans())
    def a_claim_passes_on(self, stage: Literal["plan", "finish"], crossing: int, *, both: bool) -> None:
        """A planner or finisher stands still for too long; it wakes when another has done its work, or stands too."""
        act = self.plans if stage == "plan" else self.finishes
        freezes = Mishap(kind="freezes", crossing=crossing, when="after")
        self.do(
            lambda: act(0, freezes),
            lambda: self.run(self.pass_time(_LONGER_THAN_A_CLAIM)),
            lambda: act(1, Mishap(kind="freezes", crossing=crossing // 2, when="after") if both else None),
        )
        process = self.controls[0].process
        if process.is_frozen:
            self.do(lambda: self.thaw(process))

    @rule(crossing=st.integers(min_value=0, max_value=4))
    def a_term_passes_on(self, crossing: int) -> None:
        """A leader stands still, and loses its connection; another leads; then it goes on."""
        leader = self.leading[0]
        self.do(
            lambda: self.worker_obeys(0, None),
            lambda: self.leads(0, 6, Mishap(kind="freezes", crossing=crossing, when="after")),
            self.leader_is_cut_off,
            lambda: self.leads(1, 6, None),
        )
        if leader.is_frozen:
            self.do(lambda: self.thaw(leader))

    def do(self, *acts: Callable[[], None]) -> None:
        """Do one thing after the other, and look after each."""
        self.promises_are_kept()
        for act in acts:
            act()
            self.promises_are_kept()

    def _day(self, *, lines: int, mishap: Mishap | None) -> tuple[Callable[[], None], ...]:
        """The steps of a batch."""
        return (
            lambda: self.plans(0, None),
            lambda: self.worker_obeys(0, None),
            lambda: self.leads(0, 6, None),
            lambda: self.worker_obeys(0, None),
            lambda: self.worker_works(0, lines, "commit", mishap),
            lambda: self.finishes(1, None),
        )
