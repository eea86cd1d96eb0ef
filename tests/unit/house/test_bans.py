"""What the linter refuses: time, chance, ids and the environment are arguments, except in the composition root."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUFF = Path(sysconfig.get_path("scripts")) / "ruff"

BANNED = [
    "import datetime as dt\n\nNOW = dt.datetime.now(dt.UTC)\n",
    "from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n",
    "from datetime import date\n\nTODAY = date.today()\n",
    "import time\n\nNOW = time.time()\n",
    "import random\n\nCHANCE = random.Random(1)\n",
    "from secrets import token_hex\n\nSECRET = token_hex()\n",
    "import os\n\nHOME = os.environ\n",
    "from os import getenv\n\nHOME = getenv('HOME')\n",
    "import uuid\n\nID = uuid.uuid4()\n",
    "import uuid_utils\n\nID = uuid_utils.uuid7()\n",
    "from unittest import mock\n\nFAKE = mock.Mock()\n",
]


def refusals(source: str, path: str) -> str:
    """Return what the linter says about banned names in this text, were it the file at this path."""
    command = [str(RUFF), "check", "--select", "TID251", "--output-format", "concise", "--stdin-filename", path, "-"]
    return subprocess.run(command, input=source, cwd=ROOT, check=False, capture_output=True, text=True).stdout


@pytest.mark.parametrize("source", BANNED)
def test_the_linter_refuses_hidden_inputs_below_the_composition_root(source: str) -> None:
    assert "TID251" in refusals(source, "src/slackwater/flow/anything.py")


@pytest.mark.parametrize("source", BANNED[:-1])
def test_the_composition_root_makes_them(source: str) -> None:
    assert "TID251" not in refusals(source, "src/slackwater/cli/anything.py")


def test_settings_are_read_from_the_environment_in_one_module() -> None:
    assert "TID251" not in refusals("import os\n\nHOME = os.environ\n", "src/slackwater/config.py")
