"""The locks in requirements/: every pin has hashes, no address is recorded, and they answer for pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(lock: Path) -> dict[str, str]:
    """Return the blocks of a lock by the name of their package: the pin and all that belongs to it."""
    blocks = re.split(r"\n(?=\S)", lock.read_text().strip())
    return {re.split(r"[=\[ ]", block, maxsplit=1)[0]: block for block in blocks}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_there_is_a_lock_for_the_service_one_for_development_and_one_for_the_installer() -> None:
    assert [lock.name for lock in LOCKS] == ["dev.txt", "service.txt", "uv.txt"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_pin_is_exact_and_has_hashes(lock: Path) -> None:
    for name, block in pins(lock).items():
        assert re.match(rf"{re.escape(name)}(\[[\w,-]+\])?==\S+", block), block.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), f"{name} has no hash"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_lock_records_where_it_was_made(lock: Path) -> None:
    text = lock.read_text()

    assert "://" not in text
    assert not re.search(r"(^|\s)--(index|extra-index|find-links|trusted-host)", text)
    assert not re.search(r"(?<!\w)/\w", text.replace("and/or", "")), "an absolute path"
    assert " @ " not in text


def test_the_locks_hold_every_dependency_of_the_project() -> None:
    service, dev = pins(ROOT / "requirements/service.txt"), pins(ROOT / "requirements/dev.txt")

    assert names(PROJECT["project"]["dependencies"]) <= service.keys()
    assert names(PROJECT["dependency-groups"]["dev"]) <= dev.keys()


def test_what_is_tested_is_what_is_shipped() -> None:
    service, dev = pins(ROOT / "requirements/service.txt"), pins(ROOT / "requirements/dev.txt")
    differing = [name for name in service if dev.get(name, "").split()[:1] != service[name].split()[:1]]

    assert differing == []


def test_every_dependency_states_its_reason() -> None:
    table = (ROOT / "pyproject.toml").read_text()
    entries = re.findall(r'^  ("[\w.\-\[\],]+[^"]*".*)$', table.split("[tool.", 1)[0], re.MULTILINE)

    assert len(entries) == len(PROJECT["project"]["dependencies"]) + len(PROJECT["dependency-groups"]["dev"])
    assert [entry for entry in entries if "  # " not in entry and ", # " not in entry] == []
