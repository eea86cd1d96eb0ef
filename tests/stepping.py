"""A seam that stops a transaction at a named stage until a test lets it go on."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Point = tuple[Literal["before", "after"], str]


@dataclass(kw_only=True)
class Step:
    """One transaction that waits: ``reached`` when it has come to its point, ``go_on`` to let it pass."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, seconds: float = 60.0) -> None:
        """Wait until a transaction stands at the point."""
        await asyncio.wait_for(self.reached.wait(), seconds)


class SteppingSeam:
    """Stops the first transaction that comes to a point that is held, and lets all others pass."""

    def __init__(self) -> None:
        self._held: dict[Point, Step] = {}
        self._steps: list[Step] = []

    def hold(self, when: Literal["before", "after"], stage: str) -> Step:
        """Stop the next transaction of a stage before or after its commit."""
        step = Step()
        self._held[when, stage] = step
        self._steps.append(step)
        return step

    @contextlib.contextmanager
    def letting_go(self) -> Iterator[None]:
        """Hold nothing once the block has ended: a test that fails must not hang."""
        try:
            yield
        finally:
            self._held.clear()
            for step in self._steps:
                step.go_on.set()

    async def before_commit(self, stage: str) -> None:
        """See TransactionSeam."""
        await self._pass(("before", stage))

    async def after_commit(self, stage: str) -> None:
        """See TransactionSeam."""
        await self._pass(("after", stage))

    async def _pass(self, point: Point) -> None:
        step = self._held.pop(point, None)
        if step is not None:
            step.reached.set()
            await step.go_on.wait()
