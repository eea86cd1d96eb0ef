"""The images: linted, without root, from locked packages, and built from what is really there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from slackwater.config import PREFIX, Settings
from tests.deployment import ROOT

_FILES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))
_IDS = [file.stem for file in _FILES]


def test_there_is_one_image_for_the_service_and_one_with_the_engine() -> None:
    assert _IDS == ["service", "worker"]


@pytest.mark.parametrize("file", _FILES, ids=_IDS)
def test_the_linter_of_dockerfiles_finds_nothing(file: Path) -> None:
    program = Path(sys.executable).with_name("hadolint")

    linted = subprocess.run([program, "--no-color", file], capture_output=True, text=True, check=False)

    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize("file", _FILES, ids=_IDS)
def test_it_does_not_run_as_root_and_says_so_with_a_number(file: Path) -> None:
    users = re.findall(r"(?m)^USER (.*)$", file.read_text())

    assert users == ["10001:10001"]


@pytest.mark.parametrize("file", _FILES, ids=_IDS)
def test_every_package_it_installs_is_locked_by_a_hash(file: Path) -> None:
    installs = re.findall(r"pip install ([^&\n]*)", file.read_text())

    assert installs
    for arguments in installs:
        ours = re.search(r"--no-deps \S*/slackwater-\*\.whl", arguments)
        assert ours or "--require-hashes" in arguments, arguments


@pytest.mark.parametrize("file", _FILES, ids=_IDS)
def test_what_it_copies_is_there_and_not_ignored(file: Path) -> None:
    copied = [
        source for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", file.read_text()) for source in line.split()[:-1]
    ]
    allowed = re.findall(r"(?m)^!(.*?)/?$", Path(f"{file}.dockerignore").read_text())

    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in allowed, source


@pytest.mark.parametrize("file", _FILES, ids=_IDS)
def test_the_settings_it_presets_are_settings(file: Path) -> None:
    names = set(re.findall(rf"({PREFIX}\w+)=", file.read_text()))

    assert names
    assert names <= {PREFIX + name.upper() for name in Settings.model_fields}


@pytest.mark.parametrize("file", _FILES, ids=_IDS)
def test_every_stage_starts_from_an_image_with_a_version(file: Path) -> None:
    bases = re.findall(r"(?m)^FROM (\S+)", file.read_text())

    assert all(re.fullmatch(r"[\w./-]+:(\d[\w.-]*|\$\{VLLM_VERSION\})", base) for base in bases), bases
    assert re.findall(r"(?m)^ARG VLLM_VERSION=(.*)$", file.read_text()) in ([], ["v0.32.0"])
