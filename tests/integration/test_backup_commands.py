"""``slackwater backup`` and ``slackwater restore`` as a person or a script runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Processes


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Processes:
    settings = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_STORE_URL": f"file://{tmp_path / 'objects'}",
        "SLACKWATER_DATA_DIR": str(tmp_path / "nothing"),
    }
    processes = Processes(environment=settings, logs=tmp_path)
    processes.prepare(model="simulated", alias="gpt-4.1-mini")
    return processes


def told(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_site_moves_into_the_data_folder_of_an_up_that_never_ran(site: Processes, tmp_path: Path) -> None:
    *phases, done = told(site.call("backup", str(tmp_path / "first")))
    up = Processes(environment={"SLACKWATER_DATA_DIR": str(tmp_path / "up")}, logs=tmp_path)
    restored = told(up.call("restore", str(tmp_path / "first")))[-1]
    again = told(up.call("backup", str(tmp_path / "second")))[-1]

    assert [phase["phase"] for phase in phases][-2:] == ["list of objects", "objects"]
    assert done["rows"] > 0
    assert done | {"done": "restored"} == restored
    assert (again["rows"], again["objects"]) == (done["rows"], done["objects"])
    tenants = [(tmp_path / name / "database" / "tenants").read_bytes() for name in ("first", "second")]
    assert tenants[0] == tenants[1]
    assert b"acme" in tenants[0]


def test_a_backup_that_is_refused_says_why_on_one_line_and_ends_with_1(site: Processes, tmp_path: Path) -> None:
    site.call("backup", str(tmp_path / "first"))
    command = [sys.executable, "-m", "slackwater", "backup", str(tmp_path / "first")]
    refused = subprocess.run(
        command, env=os.environ | site.environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith("holds a backup already; name another folder")
    assert refused.stdout == ""
