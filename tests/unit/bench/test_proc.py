"""What is read from /proc."""

import os
from pathlib import Path

import pytest

from bench import proc
from bench.proc import Stat

STAT = (
    "4242 (a (very) odd) name) S 17 4242 4242 0 -1 4194560 1000 2000 0 0 120 30 400 50 20 0 9 0 123 "
    "435000000 25000 18446744073709551615 1 1 0 0 0 0 0 16781312 134235138 0 0 0 17 1 0 0 0 0 0\n"
)
STATUS = "Name:\tpython\nVmPeak:\t  435000 kB\nVmHWM:\t  100000 kB\nVmRSS:\t   90000 kB\nThreads:\t9\n"


def stat(pid: int, parent: int, *, own: int = 0, reaped: int = 0) -> Stat:
    return Stat(pid=pid, name="x", parent=parent, cpu_ticks=own, reaped_ticks=reaped)


def test_a_name_with_parentheses_hides_no_field() -> None:
    read = proc.parse_stat(STAT)

    assert read == Stat(pid=4242, name="a (very) odd) name", parent=17, cpu_ticks=150, reaped_ticks=450)


def test_sizes_are_read_in_bytes() -> None:
    assert proc.parse_bytes(STATUS, "VmHWM") == 102_400_000
    assert proc.parse_bytes(STATUS, "Pss") == 0


def test_a_family_is_a_process_and_all_that_descend_from_it() -> None:
    stats = [stat(1, 0), stat(30, 20), stat(10, 1), stat(20, 10), stat(11, 1), stat(21, 11)]

    assert [member.pid for member in proc.family(10, stats)] == [10, 20, 30]
    assert proc.family(99, stats) == []


def test_the_time_of_ended_children_counts_where_they_were_waited_for() -> None:
    ticks = os.sysconf("SC_CLK_TCK")

    assert proc.cpu_seconds([stat(10, 1, own=ticks, reaped=2 * ticks), stat(20, 10, own=ticks)]) == 4.0


def test_a_child_that_ends_takes_no_time_away() -> None:
    before = [stat(10, 1, own=100), stat(20, 10, own=50)]
    after = [stat(10, 1, own=100, reaped=55)]

    assert proc.cpu_seconds(after) > proc.cpu_seconds(before)


def test_what_was_added_is_told_by_role() -> None:
    assert proc.difference({"api": 1.0}, {"api": 1.5, "work": 2.0}) == {"api": 0.5, "work": 2.0}


def test_the_busy_share_counts_neither_idling_nor_waiting_for_a_disk() -> None:
    before = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n"
    after = "cpu  130 0 60 840 70 0 0 0 0 0\ncpu0 1 2 3\n"

    assert proc.busy_share(before, after) == pytest.approx(0.4)
    assert proc.busy_share(before, before) == 0.0


def test_this_process_is_found_with_its_time_memory_and_command() -> None:
    (own,) = [each for each in proc.all_stats() if each.pid == os.getpid()]

    assert own.parent == os.getppid()
    assert proc.cpu_seconds([own]) > 0.0
    assert proc.peak_bytes(own.pid) > 1 << 20
    assert "python" in Path(proc.arguments(own.pid)[0]).name


def test_a_process_that_has_ended_has_no_memory_and_no_command() -> None:
    nobody = 1 << 30

    assert (proc.peak_bytes(nobody), proc.proportional_bytes(nobody), proc.arguments(nobody)) == (0, 0, [])
    proc.reset_peak(nobody)
