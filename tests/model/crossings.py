"""What can go wrong between any two changes: processes that pass the two seams, and die, fail or freeze at one.

A *process* of the model is a name; whatever it does runs in tasks that bear it (a context variable). It may be given
a :class:`Mishap`, which happens the n-th time from then on that it crosses a seam: before or after a change, of a row
or of an object, whatever stage it belongs to. So every point between two changes is found by counting, and one that is
added tomorrow is found, too.
"""

import asyncio
import contextvars
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from hypothesis import note

from slackwater.blobs.local import LocalFolder
from slackwater.blobs.store import ObjectStore
from slackwater.domain.errors import DatabaseUnavailable, LeaseLost, StoreUnavailable, Unavailable

When = Literal["before", "after"]
_ACT_SECONDS: Final = 120.0
_BEAT: Final = "leader-beat"
"""The one task that outlives its act: the leader is heard on its connection from then on."""


class ProcessDied(BaseException):
    """Stands for kill -9: nothing in the product may catch it."""


@dataclass(frozen=True, kw_only=True)
class Mishap:
    """What happens to a process at one of its crossings, counted from its next act on."""

    kind: Literal["dies", "fails", "freezes"]
    crossing: int
    when: When
    """Before the change, or after it and before its process heard of it. One that freezes always does so after."""


@dataclass(kw_only=True, eq=False)
class Process:
    """One process of the model, and what is to happen to it."""

    name: str
    tally: Counter[str]
    """How often what happened where, over all examples."""
    mishap: Mishap | None = None
    crossed: int = 0
    frozen: asyncio.Event = field(default_factory=asyncio.Event)
    thaw: asyncio.Event = field(default_factory=asyncio.Event)
    act: "asyncio.Task[Any] | None" = None
    """What it was doing when it froze."""

    killed: bool = False
    """Whether it is to die where it stands."""

    @property
    def is_frozen(self) -> bool:
        return self.act is not None


_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


async def cross(place: str, when: When, error: type[Unavailable]) -> None:
    """Pass one point between two changes; the process's mishap, if it is here, happens."""
    process = _PROCESS.get()
    if process is None or (mishap := process.mishap) is None or mishap.when != when:
        return
    process.crossed += 1
    if process.crossed <= mishap.crossing:
        return
    process.mishap = None
    note(f"{process.name} {mishap.kind} {when} {place}")
    process.tally[f"{mishap.kind} {when} {place.split(' of ', maxsplit=1)[0]}"] += 1
    match mishap.kind:
        case "dies":
            raise ProcessDied
        case "fails":
            raise error(f"{place} fails {when} it happens")
        case "freezes":
            process.frozen.set()
            await process.thaw.wait()
            if process.killed:
                raise ProcessDied


class DatabaseCrossings:
    """The seam of the database."""

    async def before_commit(self, stage: str) -> None:
        await cross(stage, "before", DatabaseUnavailable)

    async def after_commit(self, stage: str) -> None:
        await cross(stage, "after", DatabaseUnavailable)


class _StoreCrossings:
    """The seam of the store."""

    async def before(self, stage: str, key: str) -> None:
        await cross(f"{stage} of {key}", "before", StoreUnavailable)

    async def after(self, stage: str, key: str) -> None:
        await cross(f"{stage} of {key}", "after", StoreUnavailable)


class CrossedStore(ObjectStore):
    """A real local store; reads are crossings as well. It never syncs, for speed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalFolder(folder, fsync=lambda _: None), seam=_StoreCrossings())

    async def get(self, key: str) -> bytes:
        await self._reading(key)
        return await super().get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await self._reading(key)
        return await super().get_range(key, start, length)

    async def size(self, key: str) -> int:
        await self._reading(key)
        return await super().size(key)

    async def read(self, key: str, *, start: int = 0, length: int | None = None) -> AsyncGenerator[bytes]:
        await self._reading(key)
        async for piece in super().read(key, start=start, length=length):
            yield piece

    async def _reading(self, key: str) -> None:
        await cross(f"read of {key}", "before", StoreUnavailable)


@dataclass(frozen=True, kw_only=True)
class Done:
    """The act came to its end."""

    value: Any


@dataclass(frozen=True, kw_only=True)
class Died:
    """The process died in the act."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A part did not answer, or the claim was lost, and the act ended with that."""


@dataclass(frozen=True, kw_only=True)
class Froze:
    """The process stands still in the middle of the act."""


Ending = Done | Died | Failed | Froze


async def perform(process: Process, act: Callable[[], Coroutine[Any, Any, Any]], mishap: Mishap | None) -> Ending:
    """Have a process do something; what it left running when it died is ended.

    A mishap waits for its crossing: where the act has fewer, it happens in a later act of the process.
    """
    assert not process.is_frozen
    if process.mishap is None:
        process.mishap, process.crossed = mishap, 0
    process.frozen.clear()
    process.thaw.clear()
    others = asyncio.all_tasks()
    context = contextvars.copy_context()
    context.run(_PROCESS.set, process)
    task = asyncio.get_running_loop().create_task(act(), name=process.name, context=context)
    return await _watch(process, task, others)


async def go_on(process: Process) -> Ending:
    """Let a frozen process go on where it stood."""
    task, process.act = process.act, None
    assert task is not None
    others = asyncio.all_tasks() - {task}
    process.thaw.set()
    process.frozen.clear()
    return await _watch(process, task, others)


async def kill(process: Process) -> None:
    """End a frozen process where it stands."""
    process.killed = True
    ending = await go_on(process)
    process.killed = False
    assert isinstance(ending, Died)


async def _watch(process: Process, task: "asyncio.Task[Any]", others: "set[asyncio.Task[Any]]") -> Ending:
    """Wait until an act ends or stands still. What is wrong in another way than by a mishap fails the test."""
    freezing = asyncio.create_task(process.frozen.wait())
    await asyncio.wait({task, freezing}, timeout=_ACT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    freezing.cancel()
    await asyncio.gather(freezing, return_exceptions=True)
    if not task.done() and process.frozen.is_set():
        process.act = task
        return Froze()
    assert task.done(), f"{process.name} hangs"
    await _end({left for left in asyncio.all_tasks() - others - {task, freezing} if left.get_name() != _BEAT})
    try:
        return Done(value=task.result())
    except ProcessDied:
        return Died()
    except (Unavailable, LeaseLost):
        return Failed()


async def _end(tasks: "set[asyncio.Task[Any]]") -> None:
    """End what an act left running; what such a task was about to write may still be written."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
