"""The commands: what the documents tell people to type exists."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):.*## \S", MAKEFILE, re.MULTILINE))
DOCUMENTS = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(document: Path) -> list[str]:
    """Return the lines of the document's fenced blocks, without prompts and comments."""
    blocks = re.findall(r"^```(?:sh|bash|console|shell)?\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(r"^\$ ", "", line).split("#")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_of_a_document_is_a_target(document: Path) -> None:
    asked = {word for line in commands(document) for word in re.findall(r"\bmake ([a-z]+)", line)}

    assert asked - TARGETS == set()


def test_every_target_says_what_it_does() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)

    assert {name for line in phony for name in line.split()} == TARGETS


def test_ci_runs_the_tests_last_with_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text()

    assert script.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in script
    assert script.rstrip().endswith("make test")


def test_the_guide_for_contributors_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 150
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_command_of_the_package_is_slackwater() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["scripts"] == {"slackwater": "slackwater.cli.main:app"}
