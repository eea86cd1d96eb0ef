"""The end of every example: all failures stop, and within a bounded number of rounds every batch has ended, audited."""

from datetime import timedelta
from typing import Final

from slackwater.domain.states import TERMINAL
from tests.model.asked import Batch
from tests.model.turns import Turns
from tests.model.world import GRACE_SECONDS, KEEP_SECONDS

_ROUNDS: Final = 40
_ROUND: Final = timedelta(seconds=GRACE_SECONDS + 35)
"""Longer than a claim, a lease and the grace of a stopped batch."""
_SWEEPS: Final = 5


class Ending(Turns):
    """Brings an example to its end."""

    def teardown(self) -> None:
        try:
            if self.sound:
                self.settle()
        finally:
            for process in self.everybody():
                if process.is_frozen:
                    self.bury(process)
            self.run(self.leave())

    def settle(self) -> None:
        """Let whatever stands still go on, then run everything until nothing is left to do."""
        for process in self.everybody():
            while process.is_frozen:
                self.thaw(process)
                self.promises_are_kept()
        for process in (*self.everybody(), self.api):
            process.mishap = None
        self.engine.restart()
        for batch in self._live():
            self.resume(batch)
        for _ in range(_ROUNDS):
            if not self._live():
                break
            self._work_once()
        left = [(batch.id, batch.seen and batch.seen.status) for batch in self._live()]
        assert not left, f"still not ended: {left}"
        self._sweep_all()

    def _live(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.seen is None or batch.seen.status not in TERMINAL]

    def _work_once(self) -> None:
        """Run every stage once, workers until they hold nothing more, then let a claim's time pass."""
        for act in (self._plan, self._lease, self._answer, self._finish):
            act()
            self.promises_are_kept()
        self.run(self.pass_time(_ROUND))

    def _plan(self) -> None:
        self.plans(0, None)

    def _lease(self) -> None:
        # A lock that another process holds is asked for every fifth tick, dead leases are looked for every tenth.
        self.worker_obeys(0, None)
        self.leads(0, 21, None)
        self.leads(1, 21, None)

    def _answer(self) -> None:
        self.worker_obeys(0, None)
        self.worker_works(0, 1000, "commit", None)
        self.worker_obeys(1, None)
        self.worker_works(1, 1000, "commit", None)

    def _finish(self) -> None:
        self.does(0, lambda control: control.finisher.expire_once(), None)
        self.finishes(0, None)

    def _sweep_all(self) -> None:
        """After long enough nothing is left but what somebody can still see; the results are audited once more."""
        for batch in self.batches:
            self.run(self.audit(batch))
        self.run(self.pass_time(timedelta(seconds=KEEP_SECONDS + 60)))
        for _ in range(_SWEEPS):
            for what in ("files", "segments", "batches", "orphans", "repeats", "workers"):
                self.sweeps(0, None, what)
        self.promises_are_kept()
        for batch in self.batches:
            self.run(self.audit(batch))
        self.run(self._check_nothing_is_left())

    async def _check_nothing_is_left(self) -> None:
        named = {row.object_key for row in await self.rows("SELECT object_key FROM files WHERE purged_at IS NULL")}
        stored = {found.key async for found in self.store.list("")}
        assert stored == named, f"left: {stored - named}, gone: {named - stored}"
        assert not await self.rows("SELECT 1 FROM chunks"), "chunks are left of batches that were swept"
