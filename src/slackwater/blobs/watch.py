"""Runs the seam and tells the observer, where there are any."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from slackwater.blobs.seam import BlobObserver, Seam


class Moved:
    """How many bytes an operation moved, filled in by whoever knows."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Watch:
    """One store's seam, observer and stopwatch."""

    def __init__(self, *, seam: Seam | None, observer: BlobObserver | None, clock: Callable[[], float]) -> None:
        self._seam = seam
        self._observer = observer
        self._clock = clock

    @contextmanager
    def timed(self, op: str) -> Iterator[Moved]:
        """Report the block as one operation: its time, what was moved, and whether it ended without an error."""
        moved = Moved()
        started = self._clock()
        ok = False
        try:
            yield moved
            ok = True
        finally:
            if self._observer is not None:
                self._observer.observed(op, self._clock() - started, moved.size_bytes, ok=ok)

    def failed(self, op: str) -> None:
        """Report an operation that failed before it could be timed."""
        if self._observer is not None:
            self._observer.observed(op, 0.0, 0, ok=False)

    @asynccontextmanager
    async def change(self, op: str, stage: str, keys: Sequence[str]) -> AsyncIterator[Moved]:
        """Put the block between the two halves of the seam, and report it."""
        for key in keys:
            await self.before(stage, key)
        with self.timed(op) as moved:
            yield moved
        for key in keys:
            await self.after(stage, key)

    async def before(self, stage: str, key: str) -> None:
        """Pass the first half of the seam."""
        if self._seam is not None:
            await self._seam.before(stage, key)

    async def after(self, stage: str, key: str) -> None:
        """Pass the second half of the seam."""
        if self._seam is not None:
            await self._seam.after(stage, key)
