"""The embedded PostgreSQL: it survives what kills it, and never outlives who started it."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from slackwater.domain.errors import SetupError
from slackwater.embedded.postgres import EmbeddedPostgres

TOKEN = "embedded-postgres-test-token-0123456789"


@pytest.fixture(scope="module")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embedded") / "pg"


@pytest.fixture(scope="module")
def server(server_folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(server_folder, token=TOKEN, fast_unsafe=True) as running:
        yield running


def wait_for_end(pid: int) -> None:
    """Return when the process is gone; fails after 20 s. A pidfd becomes readable at that moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = select.select([handle], [], [], 20)
        assert readable, f"process {pid} is still there"
    finally:
        os.close(handle)


def lives(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_in(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().split()[0])


def group_members(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return found


def scalar(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return row[0]


def test_it_answers_over_tcp_and_over_the_socket(server: EmbeddedPostgres) -> None:
    assert str(scalar(server.url, "SHOW server_version")).startswith("18.")
    assert scalar(server.socket_url, "SHOW jit") == "off"


def test_a_wrong_password_is_refused(server: EmbeddedPostgres) -> None:
    for url in (server.url, server.socket_url):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(url.replace(TOKEN, "wrong"))


def test_its_files_are_closed_to_others(server: EmbeddedPostgres, server_folder: Path) -> None:
    assert (server_folder / "data").stat().st_mode & 0o777 == 0o700
    assert (server_folder / "password").stat().st_mode & 0o777 == 0o600
    assert TOKEN not in (server_folder / "postgres.log").read_text()
    assert TOKEN not in repr(server)


def test_it_is_durable_unless_asked_otherwise(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "pg", token=TOKEN) as server:
        assert scalar(server.url, "SHOW fsync") == "on"
        assert scalar(server.url, "SHOW synchronous_commit") == "on"


def test_committed_rows_survive_a_kill_of_the_postmaster(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    url, pid = server.url, server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)
    assert not server.running

    server.start()

    assert server.url == url
    assert scalar(url, "SELECT count(*) FROM kept") == 1000


def test_a_start_waits_for_a_backend_that_outlives_its_killed_server(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "pg", token=TOKEN, fast_unsafe=True) as server:
        pid = server.pid
        assert pid is not None
        with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as connection:
            backend = connection.info.backend_pid
            # It looks at nothing but its sum, and so not at whether its server still lives.
            connection.pgconn.send_query(b"SELECT sum(sqrt(n)) FROM generate_series(1, 3000000) n")
            os.kill(pid, signal.SIGKILL)
            wait_for_end(pid)
            assert lives(backend)

            server.start()

            assert not lives(backend)
        assert scalar(server.url, "SELECT 1") == 1


def test_a_second_start_of_a_running_server_changes_nothing(server: EmbeddedPostgres) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_a_folder_keeps_its_first_password_over_restarts(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "pg", token=TOKEN, fast_unsafe=True) as first:
        scalar(first.url, "SELECT 1")
    with EmbeddedPostgres(tmp_path / "pg", token="another" * 8, fast_unsafe=True) as second:
        assert scalar(second.url, "SELECT 1") == 1


def test_stop_leaves_no_process_and_no_lock(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "pg", token=TOKEN, fast_unsafe=True)
    server.start()
    group = server.pid
    assert group is not None
    assert group_members(group)

    server.stop()
    server.stop()

    assert not group_members(group)
    assert not (tmp_path / "pg" / "data" / "postmaster.pid").exists()


def test_a_stale_lock_naming_a_stranger_does_not_stop_a_start(tmp_path: Path) -> None:
    folder = tmp_path / "pg"
    with EmbeddedPostgres(folder, token=TOKEN, fast_unsafe=True):
        pid_file = folder / "data" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]))
    with EmbeddedPostgres(folder, token=TOKEN, fast_unsafe=True) as server:
        assert scalar(server.url, "SELECT 1") == 1


def test_an_interrupted_first_start_is_swept_by_the_next(tmp_path: Path) -> None:
    half = tmp_path / "pg" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(tmp_path / "pg", token=TOKEN, fast_unsafe=True) as server:
        assert scalar(server.url, "SELECT 1") == 1
    assert not half.exists()


def test_a_folder_with_a_long_name_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / ("long-" * 20) / "pg", token=TOKEN, fast_unsafe=True) as server:
        assert scalar(server.socket_url, "SELECT 1") == 1


def test_a_taken_port_is_told_in_the_error(server: EmbeddedPostgres, tmp_path: Path) -> None:
    second = EmbeddedPostgres(tmp_path / "second", token=TOKEN, fast_unsafe=True, port=server.port)
    with pytest.raises(SetupError, match="Address already in use"):
        second.start()


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="32 characters"):
        EmbeddedPostgres(tmp_path, token="secret")


def test_it_ends_with_the_process_that_started_it_and_its_folder_serves_again(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import pathlib, sys
        from slackwater.embedded.postgres import EmbeddedPostgres
        server = EmbeddedPostgres(pathlib.Path({str(tmp_path / "pg")!r}), token={TOKEN!r}, fast_unsafe=True)
        server.start()
        print(server.pid, flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        postmaster = int(parent.stdout.readline())
        assert pid_in(tmp_path / "pg") == postmaster
        parent.kill()
    # At once, as a restarted supervisor would: the old server may still be on its way out.
    with EmbeddedPostgres(tmp_path / "pg", token=TOKEN, fast_unsafe=True) as server:
        wait_for_end(postmaster)
        assert scalar(server.url, "SELECT 1") == 1
