"""What workers do, and what becomes of them: they die, stand still beyond their leases, and lose their engine."""

from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.controls import Controls, mishaps
from tests.model.crossings import Mishap, Process, perform
from tests.model.customers import at
from tests.model.hands import Hand


class Workers(Controls):
    """Two workers on one engine."""

    def __init__(self) -> None:
        super().__init__()
        self.hands = [
            Hand(db=self.db, store=self.store, engine=self.engine, process=self.process(f"worker-{n}")) for n in "12"
        ]

    def everybody(self) -> list[Process]:
        return [*super().everybody(), *(hand.process for hand in self.hands)]

    def replace(self, process: Process) -> None:
        super().replace(process)
        for hand in self.hands:
            if hand.process is process:
                hand.die()

    def works(self, which: int, act: Callable[[Hand], Coroutine[Any, Any, None]], mishap: Mishap | None = None) -> None:
        """Have a worker do something, unless it stands still; a dead one begins anew first."""
        hand = self.hands[which % len(self.hands)]
        if hand.process.is_frozen:
            return

        async def begin_and_act() -> None:
            if not hand.alive:
                await hand.start()
            await act(hand)

        self.settled(hand.process, self.run(perform(hand.process, begin_and_act, mishap)))

    @rule(which=at, mishap=mishaps)
    def worker_obeys(self, which: int, mishap: Mishap | None) -> None:
        self.works(which, Hand.obey, mishap)

    @rule(
        which=at,
        lines=st.integers(min_value=0, max_value=9),
        then=st.sampled_from(["commit", "commit", "keep", "stop"]),
        mishap=mishaps,
    )
    def worker_works(self, which: int, lines: int, then: str, mishap: Mishap | None) -> None:
        """Have some lines answered, and commit or keep what came of it, or do nothing more for now.

        Whether a lease still stands only the database can tell: a worker commits what is complete.
        """

        async def work(hand: Hand) -> None:
            await hand.answer(lines)
            if then == "commit":
                await hand.commit()
            elif then == "keep":
                await hand.checkpoint()

        self.works(which, work, mishap)

    @rule(which=at, mishap=mishaps)
    def worker_gives_back(self, which: int, mishap: Mishap | None) -> None:
        self.works(which, Hand.give_back, mishap)

    @rule(which=at)
    def worker_dies(self, which: int) -> None:
        hand = self.hands[which % len(self.hands)]
        if hand.process.is_frozen:
            self.bury(hand.process)
        hand.die()

    @rule()
    def engine_goes_away_or_comes_back(self) -> None:
        if self.engine.is_up:
            self.engine.crash()
        else:
            self.engine.restart()
