"""Running the long commands of a setup: everything they say goes to a log, a few lines to the person who waits."""

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slackwater.domain.errors import SetupError

Report = Callable[[str], None]
"""Takes one line of progress for a person."""

_TAIL_LINES: Final = 12
_ALLOWED: Final = frozenset({"HOME", "LANG", "PATH", "TMPDIR", "USER"})
_ALLOWED_PREFIXES: Final = ("CURL_", "HF_", "LC_", "PIP_", "REQUESTS_", "SSL_", "UV_", "XDG_")
_ALLOWED_SUFFIXES: Final = ("_proxy", "_PROXY")


def setup_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Keep what package installers need (paths, proxies, certificates, their own settings), none of our secrets."""
    return {
        name: value
        for name, value in environment.items()
        if name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES) or name.endswith(_ALLOWED_SUFFIXES)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """How a command ended."""

    succeeded: bool
    tail: str
    """Its last lines."""


class CommandLog:
    """Runs commands one after another, with one log file for all of them and one lean environment."""

    def __init__(self, path: Path, *, environment: Mapping[str, str], report: Report) -> None:
        """``environment``: the caller's; only :func:`setup_environment` of it is handed on."""
        self._path = path
        self._environment = setup_environment(environment)
        self.report = report

    def attempt(self, command: Sequence[str | Path], *, shown: re.Pattern[str] | None = None) -> Finished:
        """Run a command to its end; its lines that match ``shown`` are reported too."""
        words = [str(word) for word in command]
        tail: list[str] = []
        with self._path.open("a") as log:
            print("$", *words, file=log, flush=True)
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    env=self._environment,
                )
            except OSError as error:
                return Finished(succeeded=False, tail=str(error))
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    log.write(line)
                    tail = [*tail[1 - _TAIL_LINES :], line.rstrip()]
                    if shown is not None and shown.search(line):
                        self.report(line.strip())
        return Finished(succeeded=process.returncode == 0, tail="\n".join(tail))

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a command that must succeed. Raises SetupError with its last lines and the log's path."""
        done = self.attempt(command)
        if not done.succeeded:
            raise self.failure(f"`{command[0]}` failed", done.tail)

    def answer(self, command: Sequence[str | Path]) -> str:
        """Return what a short command says on its standard output, "" where it fails."""
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, env=self._environment, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    def failure(self, what: str, tail: str) -> SetupError:
        """Return the error that tells what failed, with the last lines and where the rest is."""
        return SetupError(f"{what}; the whole log is in {self._path}, and ends with:\n{tail}")
