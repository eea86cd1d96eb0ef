"""The engine's own Python environment, in a folder of its own: vLLM's dependencies and ours never meet.

A stamp, written last, says what the folder holds. Without it the folder is half made, and is made anew: the installers
keep what they downloaded, so that costs seconds. The lock file, written first, marks the folder as ours to empty.
"""

import fcntl
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from slackwater.domain.errors import SetupError
from slackwater.embedded.engine_recipe import (
    Accelerator,
    Recipe,
    find_accelerator,
    pip_arguments,
    recipe,
    uv_arguments,
)
from slackwater.embedded.logged_command import CommandLog, Finished, Report

_LOCK: Final = "slackwater-engine.lock"
_STAMP: Final = "slackwater-engine.json"
_LOG: Final = "install.log"
_SHOWN: Final = re.compile(r"^\s*(Resolved|Prepared|Installed|Bytecode)|Downloading .*\(\d{2,}[.\d]* ?Mi?B\)")
"""Lines of an installer that a waiting person wants to see: its stages, and downloads of 10 MB and more."""
_FIRST_LOAD: Final = "import vllm.entrypoints.openai.api_server"
"""Proves that the environment works, and leaves byte code of the modules that every start needs; compiling all 20,000
modules costs three times as much."""
_QUICK_START: Final = "import gc; gc.set_threshold(50_000, 20, 50)\n"
"""For every process of the environment: vLLM imports 4,000 modules twice a start, a fifth of which time goes into
looking for garbage that is not there."""
_TORCH_NOT_FOUND: Final = re.compile(r"\btorch\b.*==")

_Install = Callable[[str | None], Finished]
"""Tries one installer, with a further index for torch or with None."""


def engine_python(folder: Path) -> Path | None:
    """Return the interpreter of the finished environment in the folder, None where there is none."""
    python = _python(folder.absolute())
    return python if (folder / _STAMP).exists() and python.exists() else None


def install_engine(
    folder: Path,
    *,
    python: Path,
    environment: Mapping[str, str],
    report: Report,
    accelerator: Accelerator | None = None,
) -> Path:
    """Return the interpreter of an environment that runs vLLM, made in ``folder`` unless it is there already.

    ``python``: the interpreter to build on. ``accelerator``: None looks for a GPU. Idempotent; safe to interrupt and to
    call from several processes at once. The first time takes a minute or two, 600 MB of downloads and 2.5 GB of disk.
    Raises SetupError, which names the log.
    """
    folder = folder.absolute()
    chosen = recipe(accelerator or find_accelerator(environment))
    with _alone_in(folder):
        finished = engine_python(folder)
        if finished is not None and (folder / _STAMP).read_text() == chosen.fingerprint():
            return finished
        _empty(folder)
        report(f"Making the engine's environment in {folder}: {', '.join(chosen.requirements)}")
        log = CommandLog(folder / _LOG, environment=environment, report=report)
        log.run([python, "-m", "venv", folder])
        _install(folder, chosen, log)
        (site_packages,) = folder.glob("lib/python*/site-packages")
        (site_packages / "slackwater.pth").write_text(_QUICK_START)
        report("Loading the engine once")
        log.run([_python(folder), "-W", "ignore", "-c", _FIRST_LOAD])
        (folder / _STAMP).write_text(chosen.fingerprint())
        return _python(folder)


def package_installer(folder: Path) -> list[str | Path]:
    """Return the command, up to its options, that installs packages with the environment's own tools."""
    uv = folder / "bin" / "uv"
    python = _python(folder)
    return [uv, "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]


def _install(folder: Path, chosen: Recipe, log: CommandLog) -> None:
    installers: list[_Install] = [_pip(folder, chosen, log)]
    if log.attempt([_python(folder), "-m", "pip", "install", "--quiet", "uv"]).succeeded:
        installers.insert(0, _uv(folder, chosen, log))
    tail = ""
    for install in installers:
        done = install(None)
        if not done.succeeded and chosen.torch_index is not None and _TORCH_NOT_FOUND.search(done.tail):
            log.report(f"No fitting torch in the usual places; trying {chosen.torch_index}")
            done = install(chosen.torch_index)
        if done.succeeded:
            return
        tail = done.tail
    raise log.failure("the engine could not be installed", tail)


def _uv(folder: Path, chosen: Recipe, log: CommandLog) -> _Install:
    def setting(name: str) -> str:
        return log.answer([_python(folder), "-m", "pip", "config", "get", f"global.{name}"])

    def install(torch_index: str | None) -> Finished:
        arguments = uv_arguments(
            chosen,
            overrides=folder / "overrides.txt",
            find_links=setting("find-links"),
            index_url=setting("index-url"),
            torch_index=torch_index,
        )
        return log.attempt([*package_installer(folder), *arguments], shown=_SHOWN)

    return install


def _pip(folder: Path, chosen: Recipe, log: CommandLog) -> _Install:
    def install(torch_index: str | None) -> Finished:
        pip: list[str | Path] = [_python(folder), "-m", "pip"]
        done = log.attempt(
            [*pip, "install", "--progress-bar=off", *pip_arguments(chosen, torch_index=torch_index)], shown=_SHOWN
        )
        if done.succeeded and chosen.left_out:
            return log.attempt([*pip, "uninstall", "--yes", *chosen.left_out])
        return done

    return install


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name == _LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; another installer waits until it is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / _LOCK).exists():
        raise SetupError(f"{folder} holds something else; give a new or empty folder for the engine's environment")
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
