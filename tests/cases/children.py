"""What a test wants to know of, or do to, a process of a site under test. Linux only, like the service's own limits."""

import resource
import subprocess
from pathlib import Path
from typing import Final

_KIB: Final = 1024
_RESET_PEAK: Final = "5"  # proc(5), /proc/pid/clear_refs


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


def _status(child: subprocess.Popen[bytes], field: str) -> int:
    for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * _KIB
    raise LookupError(field)
