"""What a test wants to know of, or do to, a process of a site under test. Linux only, like the service's own limits."""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_RESET_PEAK: Final = "5"  # proc(5), /proc/pid/clear_refs
_LISTENS: Final = "0A"  # include/net/tcp_states.h
LOOPBACK: Final = "0100007F"
"""127.0.0.1 as ``listening`` has it."""


def resident_bytes(child: subprocess.Popen[bytes]) -> int:
    """Return how much memory a process holds now."""
    return _status(child, "VmRSS")


def peak_bytes(child: subprocess.Popen[bytes]) -> int:
    """Return the most memory that a process held since it began, or since ``forget_peak``."""
    return _status(child, "VmHWM")


def forget_peak(child: subprocess.Popen[bytes]) -> None:
    """Begin a new peak."""
    Path(f"/proc/{child.pid}/clear_refs").write_text(_RESET_PEAK)


def limit_file_size(child: subprocess.Popen[bytes], size_bytes: int | None) -> None:
    """Let every write past this size fail with EFBIG, in whatever file, as on a disk that is full; None lifts it."""
    soft = resource.RLIM_INFINITY if size_bytes is None else size_bytes
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))


def listening(child: subprocess.Popen[bytes]) -> set[tuple[str, int]]:
    """Return where a process listens: addresses, as the kernel writes them, and TCP ports."""
    own = set()
    for descriptor in Path(f"/proc/{child.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It was closed since the folder was read.
            own.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{child.pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (row.split()[column] for column in (1, 3, 9))
            if state == _LISTENS and inode in own:
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


async def refuses_to_start(role: str, settings: Mapping[str, str]) -> str:
    """Start a role that cannot run as it is set, wait for its end, and return all that it said."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLACKWATER_")}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "slackwater",
        role,
        env=inherited | {"SLACKWATER_PROBE_PORT": "0", **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        said, _ = await child.communicate()
    assert child.returncode not in {0, None}
    return said.decode()


def _status(child: subprocess.Popen[bytes], field: str) -> int:
    for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * _KIB
    raise LookupError(field)
