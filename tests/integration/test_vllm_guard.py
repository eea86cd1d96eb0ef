"""The guard of the engine, with shell scripts for engines: nothing outlives its owner."""

import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from slackwater.inference import vllm_guard
from tests.engines import processes_in

GUARD = [sys.executable, "-I", "-S", vllm_guard.__file__]
PARENT_AND_CHILD = "sleep 300 & echo child $!; echo engine $$; wait"
STUBBORN = "trap '' TERM; echo engine $$; while true; do sleep 1; done"


def guarded(log: Path, script: str, *, grace: float = 5.0) -> subprocess.Popen[bytes]:
    command = [*GUARD, str(log), str(grace), "/bin/sh", "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def said(log: Path, name: str) -> int:
    """Wait for ``NAME NUMBER`` in the log and return the number."""
    while True:
        for line in log.read_text().splitlines() if log.exists() else []:
            if line.startswith(f"{name} "):
                return int(line.split()[1])
        select.select([], [], [], 0.01)


def wait_for_empty(group: int) -> None:
    for _ in range(2000):
        if not processes_in(group):
            return
        select.select([], [], [], 0.01)
    raise AssertionError(f"still there: {processes_in(group)}")


def test_the_end_of_its_input_ends_the_whole_group(tmp_path: Path) -> None:
    guard = guarded(tmp_path / "log", PARENT_AND_CHILD)
    child = said(tmp_path / "log", "child")
    assert child in processes_in(guard.pid)
    guard.communicate(timeout=20)
    assert guard.returncode != 0
    assert not processes_in(guard.pid)


def test_a_sigterm_ends_the_whole_group(tmp_path: Path) -> None:
    with guarded(tmp_path / "log", PARENT_AND_CHILD) as guard:
        said(tmp_path / "log", "engine")
        guard.terminate()
        guard.wait(20)
    assert not processes_in(guard.pid)


def test_an_engine_that_ends_takes_its_children_along_and_its_code_is_kept(tmp_path: Path) -> None:
    with guarded(tmp_path / "log", "sleep 300 & echo last words; exit 7") as guard:
        assert guard.wait(20) == 7
    assert "last words" in (tmp_path / "log").read_text()
    assert not processes_in(guard.pid)


def test_a_stubborn_engine_is_killed_after_the_grace(tmp_path: Path) -> None:
    guard = guarded(tmp_path / "log", STUBBORN, grace=0.3)
    said(tmp_path / "log", "engine")
    guard.communicate(timeout=20)
    wait_for_empty(guard.pid)
    assert "is killed" in (tmp_path / "log").read_text()


def test_a_killed_guard_takes_the_engine_along(tmp_path: Path) -> None:
    with guarded(tmp_path / "log", "echo engine $$; exec sleep 300") as guard:
        said(tmp_path / "log", "engine")
        guard.kill()
    wait_for_empty(guard.pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_owner_takes_everything_along_even_from_another_thread(tmp_path: Path, number: signal.Signals) -> None:
    program = textwrap.dedent(f"""
        import subprocess, sys, threading
        def start():
            global guard
            guard = subprocess.Popen({[*GUARD, str(tmp_path / "log"), "5", "/bin/sh", "-c", PARENT_AND_CHILD]!r},
                                     stdin=subprocess.PIPE, start_new_session=True)
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        print(guard.pid, flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        # The thread that started it has ended, and it lives on: the trap of PR_SET_PDEATHSIG.
        said(tmp_path / "log", "engine")
        assert len(processes_in(group)) == 3
        owner.send_signal(number)
    wait_for_empty(group)


def test_a_full_log_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_guard, "_MOST_LOG_BYTES", 100)
    log = vllm_guard.RotatingLog(tmp_path / "log")
    for number in range(30):
        log.write(b"line %02d\n" % number)
    log.close()
    assert (tmp_path / "log").stat().st_size <= 108
    assert (tmp_path / "log.old").exists()
    assert "line 29" in (tmp_path / "log").read_text() + (tmp_path / "log.old").read_text()
