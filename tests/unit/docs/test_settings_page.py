"""docs/settings.md and the settings say the same, in both directions."""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from slackwater.config import NOT_SETTINGS, PREFIX, Settings
from tests.unit.docs.settings_page import shown_default, shown_type

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "settings.md").read_text()

_ROW = re.compile(r"^\| `(SLACKWATER_\w+)` \| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_ELSEWHERE = re.compile(r"^\| `(SLACKWATER_\w+)` \| (?!`\w+` \| .+ \| .+ \| )", re.MULTILINE)


class Row(NamedTuple):
    """What one row of the page says."""

    environment: str
    toml: str
    kind: str
    default: str
    meaning: str


ROWS = [Row(*found) for found in _ROW.findall(PAGE)]


def test_the_page_has_every_setting_once_and_no_other() -> None:
    assert sorted(row.toml for row in ROWS) == sorted(Settings.model_fields)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.toml)
def test_a_row_says_what_the_code_says(row: Row) -> None:
    field = Settings.model_fields[row.toml]

    assert row.environment == PREFIX + row.toml.upper()
    assert row.kind == shown_type(field)
    assert row.default == shown_default(field)
    assert row.meaning.startswith(field.description or "a description is missing")


def test_the_page_has_every_name_that_is_read_elsewhere() -> None:
    assert set(_ELSEWHERE.findall(PAGE)) == NOT_SETTINGS


def test_the_example_of_a_file_can_be_loaded() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    values = tomllib.loads(example)

    settings = Settings(**values)

    assert settings.model_fields_set >= values.keys()


@pytest.mark.parametrize("document", ["README.md", "docs/operating.md", "deploy/README.md"])
def test_a_setting_that_a_document_names_exists(document: str) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | NOT_SETTINGS

    named = set(re.findall(r"\bSLACKWATER_[A-Z_]*[A-Z]\b", (ROOT / document).read_text()))

    assert named - known == set()


def test_the_images_and_the_compose_file_set_only_what_exists() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | NOT_SETTINGS
    files = [ROOT / "docker-compose.yml", *(ROOT / "deploy" / "images").glob("*.Dockerfile")]
    texts = "\n".join(path.read_text() for path in files)

    # `NAME:` in YAML and `NAME=` in a Dockerfile hand a value to a process; `${NAME…}` is compose's own.
    handed = set(re.findall(r"^\s*(?:ENV )?(SLACKWATER_[A-Z_]+)[:=]", texts, re.MULTILINE))

    assert handed
    assert handed - known == set()
