"""What Linux says about processes: CPU time, peak memory, and who belongs to whom. Read from /proc."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024
_PEAK_RESET: Final = "5"
"""What ``clear_refs`` takes to reset VmHWM to the present size (proc(5))."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stat:
    """The part of ``/proc/PID/stat`` that is used here."""

    pid: int
    name: str
    parent: int
    cpu_ticks: int
    """User and system time of its own."""
    reaped_ticks: int
    """The same of its children that have ended and been waited for."""


def parse_stat(text: str) -> Stat:
    """Read one ``/proc/PID/stat``. The name may hold blanks and parentheses: its last ``)`` ends it."""
    pid, _, rest = text.partition(" (")
    name, _, facts = rest.rpartition(") ")
    fields = facts.split()
    user, system, user_reaped, system_reaped = (int(field) for field in fields[11:15])
    return Stat(
        pid=int(pid),
        name=name,
        parent=int(fields[1]),
        cpu_ticks=user + system,
        reaped_ticks=user_reaped + system_reaped,
    )


def parse_bytes(text: str, field: str) -> int:
    """Return one field of ``/proc/PID/status`` or ``smaps_rollup``, which is in KiB, in bytes; 0 where it lacks."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * _KIB
    return 0


def family(root: int, stats: Iterable[Stat]) -> list[Stat]:
    """Return a process and all its living descendants, parents before children."""
    children: dict[int, list[Stat]] = {}
    found: list[Stat] = []
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat)
        if stat.pid == root:
            found.append(stat)
    for member in found:
        found.extend(children.get(member.pid, ()))
    return found


def cpu_seconds(members: Iterable[Stat]) -> float:
    """Return the CPU time of a family so far, with that of members that have ended since.

    Grows only, as long as ended members are waited for by one that lives.
    """
    return sum(member.cpu_ticks + member.reaped_ticks for member in members) / _TICKS_PER_SECOND


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what was added to each role's figure; a role that is new began at zero."""
    return {role: value - before.get(role, 0.0) for role, value in after.items()}


def busy_share(before: str, after: str) -> float:
    """Return the share of all CPU time that was not idle between two readings of ``/proc/stat``; in [0, 1]."""
    first, second = ([int(field) for field in text.splitlines()[0].split()[1:9]] for text in (before, after))
    spent = [later - earlier for earlier, later in zip(first, second, strict=True)]
    idle = spent[3] + spent[4]
    return 1.0 - idle / sum(spent) if sum(spent) else 0.0


def all_stats() -> list[Stat]:
    """Read every process of this machine; those that end meanwhile are left out."""
    stats = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stats.append(parse_stat((entry / "stat").read_text()))
    return stats


def arguments(pid: int) -> list[str]:
    """Return the command line of a process; empty where it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def peak_bytes(pid: int) -> int:
    """Return the largest resident size of a process since it began or since :func:`reset_peak`."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return parse_bytes((PROC / str(pid) / "status").read_text(), "VmHWM")
    return 0


def proportional_bytes(pid: int) -> int:
    """Return the resident size of a process now, with shared pages divided among those who share them."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return parse_bytes((PROC / str(pid) / "smaps_rollup").read_text(), "Pss")
    return 0


def reset_peak(pid: int) -> None:
    """Begin to measure the peak anew; a process that has ended is left alone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        (PROC / str(pid) / "clear_refs").write_text(_PEAK_RESET)
