"""What the processes of the control role do: any of them any stage, one of two the leader, each with a mishap."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from slackwater.flow.schedule import Leader
from tests.model.crossings import Died, Ending, Mishap, Process, go_on, kill, perform
from tests.model.customers import Customers, at
from tests.model.world import Control

_KINDS: Final = [("dies", "before"), ("dies", "after"), ("fails", "before"), ("fails", "after"), ("freezes", "after")]
_CROSSINGS: Final = [0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8]
mishaps = st.one_of(
    st.none(),
    *(
        st.builds(Mishap, kind=st.just(kind), crossing=st.sampled_from(_CROSSINGS), when=st.just(when))
        for kind, when in _KINDS
    ),
)
"""Mostly one: what goes well is tested elsewhere."""
_CUT_OFF: Final = """
SELECT pg_terminate_backend(a.pid, 5000)
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()
"""


class Controls(Customers):
    """Three processes that plan, finish and sweep, and two candidates for the lead."""

    def __init__(self) -> None:
        self.leading = [self.process(f"leader-{name}") for name in "ab"]
        super().__init__()

    def does(self, who: int, act: Callable[[Control], Coroutine[Any, Any, Any]], mishap: Mishap | None) -> None:
        """Have a control process do something, unless it stands still."""
        control = self.controls[who % len(self.controls)]
        if not control.process.is_frozen:
            self.settled(control.process, self.run(perform(control.process, lambda: act(control), mishap)))

    def settled(self, process: Process, ending: Ending) -> None:
        """Where an act ended with its process, another process takes its place."""
        if isinstance(ending, Died):
            self.replace(process)

    def replace(self, process: Process) -> None:
        """What a process had in memory is gone; a leader's connection, and its lock, with it."""
        for place, control in enumerate(self.controls):
            if control.process is process:
                self.controls[place] = self._control(process.name)
        if process in self.leading:
            who = self.leading.index(process)
            self.run(self.leaders[who].lock.close())
            self.leaders[who] = self._candidate("ab"[who])

    @rule(who=at, mishap=mishaps)
    def plans(self, who: int, mishap: Mishap | None) -> None:
        self.does(who, lambda control: control.planner.plan_once(), mishap)

    @rule(who=at, mishap=mishaps)
    def finishes(self, who: int, mishap: Mishap | None) -> None:
        self.does(who, lambda control: control.finisher.finish_once(), mishap)

    @rule(who=at, which=at, mishap=mishaps)
    def a_window_ends(self, who: int, which: int, mishap: Mishap | None) -> None:
        """The deadline of one batch is over, and with it that of others; somebody sees to it."""
        batch = self.batch(which)
        if batch is None:
            return
        left = batch.created + batch.window - self.elapsed + timedelta(minutes=3)
        if timedelta() < left < timedelta(days=2):
            self.run(self.pass_time(left))
        self.does(who, lambda control: control.finisher.expire_once(), mishap)

    @rule(
        who=at, mishap=mishaps, what=st.sampled_from(["files", "batches", "segments", "orphans", "repeats", "workers"])
    )
    def sweeps(self, who: int, mishap: Mishap | None, what: str) -> None:
        self.does(who, lambda _: self._sweeps(what), mishap)

    def _sweeps(self, what: str) -> Coroutine[Any, Any, bool]:
        """One pass of the sweep."""
        sweeper = self.sweeper
        passes: dict[str, Callable[[], Coroutine[Any, Any, bool]]] = {
            "files": sweeper.sweep_files_once,
            "batches": sweeper.sweep_batches_once,
            "segments": sweeper.sweep_segments_once,
            "orphans": sweeper.sweep_orphans_once,
            "repeats": sweeper.forget_repeats_once,
            "workers": sweeper.forget_workers_once,
        }
        return passes[what]()

    @rule(who=st.sampled_from([0, 0, 0, 1]), ticks=st.sampled_from([1, 6, 6, 11, 21]), mishap=mishaps)
    def leads(self, who: int, ticks: int, mishap: Mishap | None) -> None:
        """Do some ticks; a leader that died comes back as a new candidate."""
        leader, process = self.leaders[who], self.leading[who]
        if process.is_frozen:
            return

        async def tick() -> None:
            for _ in range(ticks):
                await leader.schedule_once()

        self._fenced(leader, lambda: self.settled(process, self.run(perform(process, tick, mishap))))

    @rule()
    def leader_is_cut_off(self) -> None:
        """Its connection breaks, and it does not know yet: the other may begin a term."""
        self.run(self.rows(_CUT_OFF))

    @rule(who=at)
    def goes_on(self, who: int) -> None:
        """A process that stood still does what it was about to do, however late that is."""
        frozen = [process for process in self.everybody() if process.is_frozen]
        if not frozen:
            return
        self.thaw(frozen[who % len(frozen)])

    def thaw(self, process: Process) -> None:
        """Let it go on, within the fence of its term if it leads."""

        def go() -> None:
            self.settled(process, self.run(go_on(process)))

        if process in self.leading:
            self._fenced(self.leaders[self.leading.index(process)], go)
        else:
            go()

    @rule(who=at)
    def is_killed_where_it_stands(self, who: int) -> None:
        frozen = [process for process in self.everybody() if process.is_frozen]
        if frozen:
            self.bury(frozen[who % len(frozen)])

    def bury(self, process: Process) -> None:
        """End a frozen process."""
        self.run(kill(process))
        self.replace(process)

    def everybody(self) -> list[Process]:
        """All processes that may stand still."""
        return [*(control.process for control in self.controls), *self.leading]

    @rule(seconds=st.sampled_from([20, 40, 70, 70, 70, 400, 3700, 90_000, 300_000]))
    def time_passes(self, seconds: int) -> None:
        self.run(self.pass_time(timedelta(seconds=seconds)))

    def _fenced(self, leader: Leader, act: Callable[[], object]) -> None:
        """A leader whose term is over writes no lease; it may win another term on the way."""
        term, before = leader.term, self.run(self._leases())
        over = term is not None and term != self.run(self._term())
        act()
        if over and leader.term == term:
            assert self.run(self._leases()) <= before, f"a lease of term {term}, which was over, stands"

    async def _term(self) -> int | None:
        found = await self.rows("SELECT term FROM leader")
        return int(found[0].term) if found else None

    async def _leases(self) -> frozenset[Any]:
        return frozenset(row.token for row in await self.rows("SELECT token FROM chunks WHERE state = 'leased'"))
