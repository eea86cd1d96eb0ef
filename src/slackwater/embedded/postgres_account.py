"""Whom PostgreSQL runs as: itself, or ``nobody`` when we are root, for it refuses to run as root.

An unprivileged user cannot enter ``/root`` or a ``mktemp`` folder, where both a checkout and its data may well lie.
We change no permission of a folder that is not ours: the server keeps one capability instead, to pass closed
folders. access(2) ignores capabilities of a non-root user unless the secure bit ``no_setuid_fixup`` is set
(capabilities(7)), and PostgreSQL looks for its own binaries with access(2).
"""

import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.domain.errors import SetupError

_ACCOUNT: Final = "nobody"
_PASS_CLOSED_FOLDERS: Final = (("dac_read_search", 2), ("dac_override", 1))
"""Capabilities that let a process pass closed folders, the weaker first, with their bit numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Who owns the server's folders and the command prefix that turns a command into one of theirs."""

    owner: tuple[int, int] | None
    """User and group number to hand folders to; None where they are ours already."""
    prefix: tuple[str, ...]
    """Goes before a command."""
    dies_with_us: tuple[str, ...]
    """Goes before a command that must get SIGINT when the *thread* that starts it ends; empty without setpriv."""

    def hand_over(self, path: Path) -> None:
        """Make the folder or file the server's own."""
        if self.owner is not None:
            os.chown(path, *self.owner)


def server_account(*must_reach: Path) -> Account:
    """Choose the account for a server that must reach these paths.

    Raises SetupError when we are root and cannot become somebody else who reaches them.
    """
    setpriv = shutil.which("setpriv", path=os.defpath + ":/usr/sbin:/sbin")
    if os.geteuid() != 0:
        watch = (setpriv, "--pdeathsig=INT", "--") if setpriv else ()
        return Account(owner=None, prefix=(), dies_with_us=watch)
    if setpriv is None:
        raise SetupError("PostgreSQL does not run as root and `setpriv` (util-linux) is not here; run as another user")
    entry = pwd.getpwnam(_ACCOUNT)
    become = [setpriv, f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    if not all(_may_pass(folder) for path in must_reach for folder in path.resolve().parents):
        capability = _capability_in_bounds(Path("/proc/self/status").read_text())
        become += [
            "--securebits=+no_setuid_fixup",
            f"--inh-caps=-all,+{capability}",
            f"--ambient-caps=+{capability}",
            f"--bounding-set=-all,+{capability}",
        ]
    return Account(
        owner=(entry.pw_uid, entry.pw_gid),
        prefix=(*become, "--"),
        dies_with_us=(*become, "--pdeathsig=INT", "--"),
    )


def _may_pass(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _capability_in_bounds(status: str) -> str:
    bounds = int(_field(status.splitlines(), "CapBnd:"), 16)
    for name, bit in _PASS_CLOSED_FOLDERS:
        if bounds >> bit & 1:
            return name
    raise SetupError(f"user {_ACCOUNT!r} cannot enter the data folder; move it to a folder that everybody may pass")


def _field(lines: Iterable[str], name: str) -> str:
    return next(line.removeprefix(name).strip() for line in lines if line.startswith(name))
