"""A PostgreSQL server of our own: the binaries of a wheel as a supervised child, all its data in one folder.

The folder holds ``data/`` (PostgreSQL's, 0700), ``run/`` (the unix socket), ``password`` (0600) and ``postgres.log``.
The server ends with the thread that started it (``PR_SET_PDEATHSIG`` follows the thread, not the process), so it may
only be started from the main thread; whoever starts it must be the one to wait for it, or the next start meets a
zombie's ``postmaster.pid``.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from slackwater.domain.errors import SetupError
from slackwater.embedded.postgres_account import Account, server_account
from slackwater.embedded.postgres_files import (
    ServerState,
    create_cluster,
    end_of_log,
    read_pid_file,
    server_arguments,
    take_over_stale_pid_file,
    wheel_binaries,
)

USER: Final = "slackwater"
DATABASE: Final = "postgres"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_LONGEST_SOCKET_FOLDER: Final = 80
"""A unix socket's path must fit 107 bytes, with ``/.s.PGSQL.65535`` and some spare."""
_PORT_TRIES: Final = 3
_STILL_ATTACHED: Final = "pre-existing shared memory block"
"""What a server says that finds backends of a killed one: each ends as soon as it notices (sysv_shmem.c)."""
_ATTACHED_PAUSE_SECONDS: Final = 0.1
_CHILD_ENVIRONMENT: Final = {"PATH": os.defpath, "HOME": "/", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""All the server sees of an environment: none of the caller's secrets are in it."""


class EmbeddedPostgres:
    """One database cluster in one folder. Not safe to share between threads."""

    def __init__(
        self,
        folder: Path,
        *,
        token: str,
        port: int | None = None,
        fast_unsafe: bool = False,
        max_connections: int = 100,
    ) -> None:
        """Describe a server; nothing is started.

        ``token``: a random secret of at least 32 characters, the password of a folder that has none yet.
        ``port``: on 127.0.0.1; None takes a free one. ``fast_unsafe``: no fsync, for tests only.
        """
        if len(token) < 32:  # noqa: PLR2004 - see scram_iterations in postgres_files
            raise SetupError("the token of an embedded PostgreSQL must be random and have at least 32 characters")
        self._folder = folder.resolve()
        self._data = self._folder / "data"
        self._log = self._folder / "postgres.log"
        self._token = token
        self._wanted_port = port
        self._port = port
        self._fast_unsafe = fast_unsafe
        self._max_connections = max_connections
        self._binaries = wheel_binaries()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_folder = self._folder / "run"

    @property
    def url(self) -> str:
        """The libpq URL over TCP, with the password: for a connection, never for a log."""
        return f"postgresql://{USER}:{quote(self._password(), safe='')}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def socket_url(self) -> str:
        """The libpq URL over the unix socket: a little cheaper a round trip, same machine only."""
        host = quote(str(self._socket_folder), safe="")
        return f"postgresql://{USER}:{quote(self._password(), safe='')}@/{DATABASE}?host={host}&port={self.port}"

    @property
    def port(self) -> int:
        """The TCP port; it stays the same over restarts of this object."""
        if self._port is None:
            raise SetupError("the embedded PostgreSQL was never started")
        return self._port

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, None while it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Tell whether the server's process is alive; reaps it if it has ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return once the server accepts connections; a new folder is initialised, a running server left alone.

        After a crash all committed rows are back; what a killed server left running is waited for. Idempotent. Costs
        about 1 s on a new folder, else 0.1 s. Raises SetupError with the end of the server's log.
        """
        if self.running:
            return
        if threading.current_thread() is not threading.main_thread():
            raise SetupError("start PostgreSQL from the main thread: it ends with the thread that started it")
        account = self._prepare()
        tries_left = _PORT_TRIES
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self._port is None:
                self._port = _free_port()
            if self._launch(account) is ServerState.READY:
                return
            why = end_of_log(self._log)
            if _STILL_ATTACHED in why and time.monotonic() < deadline:
                time.sleep(_ATTACHED_PAUSE_SECONDS)
                continue
            tries_left -= 1
            if self._wanted_port is not None or not tries_left or "Address already in use" not in why:
                raise SetupError(f"PostgreSQL did not start; the end of {self._log}:\n{why}")
            self._port = None

    def stop(self) -> None:
        """End the server and wait for it: its clients are cut off, a checkpoint is written. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)
        if self._socket_folder.parent != self._folder:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _prepare(self) -> Account:
        self._folder.mkdir(parents=True, exist_ok=True)
        account = server_account(self._data, self._binaries / "postgres")
        if len(os.fsencode(self._socket_folder)) > _LONGEST_SOCKET_FOLDER:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="slackwater-pg-"))
        self._socket_folder.mkdir(exist_ok=True)
        self._socket_folder.chmod(0o755)
        account.hand_over(self._socket_folder)
        if not self._data.exists():
            password_file = self._keep_password()
            create_cluster(
                self._data,
                self._binaries,
                account,
                password=password_file.read_text(),
                user=USER,
                environment=_CHILD_ENVIRONMENT,
                sync=not self._fast_unsafe,
            )
        take_over_stale_pid_file(self._data, patience_seconds=_STOP_SECONDS)
        return account

    def _keep_password(self) -> Path:
        path = self._folder / "password"
        if not path.exists():
            unfinished = path.with_suffix(".new")
            unfinished.touch(mode=0o600)
            unfinished.write_text(self._token)
            unfinished.replace(path)
        return path

    def _password(self) -> str:
        return (self._folder / "password").read_text()

    def _launch(self, account: Account) -> ServerState:
        command = [*account.dies_with_us, str(self._binaries / "postgres")]
        command += server_arguments(
            self._data,
            self._socket_folder,
            port=self.port,
            max_connections=self._max_connections,
            fast_unsafe=self._fast_unsafe,
        )
        if self._log.exists():
            self._log.replace(self._log.with_suffix(".log.old"))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_CHILD_ENVIRONMENT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while self.running and time.monotonic() < deadline:
            pid, state = read_pid_file(self._data)
            if pid == self._process.pid and state is ServerState.READY:
                return state
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
        self.stop()
        return ServerState.GONE


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask for a fast shutdown, then an immediate one, then kill the whole group; always reaps."""
    for ask in (signal.SIGINT, signal.SIGQUIT):
        process.send_signal(ask)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
