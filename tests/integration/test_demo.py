"""The programs under ``examples/``, run as a person runs them, against a stand-in for the service."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.people.fake_service import FakeService, serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def standin(tmp_path: Path) -> Path:
    command = tmp_path / "slackwater"
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m tests.integration.standin "$@"\n')
    command.chmod(0o755)
    return command


@pytest.fixture
def requests_file(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"custom_id": f"r{number:02}"}) + "\n" for number in range(20)))
    return path


def demo(standin: Path, requests_file: Path, *more: str) -> list[str]:
    data_dir = standin.parent / "data"
    options = ("--slackwater", standin, "--data-dir", data_dir, "--input", requests_file, *more)
    return [sys.executable, str(ROOT / "examples" / "demo.py"), *map(str, options)]


def run(arguments: list[str], misbehaviour: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STANDIN": misbehaviour, "COLUMNS": "120", "HTTP_PROXY": "http://127.0.0.1:9"}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_demo_shows_the_answers_and_ends_clean(standin: Path, requests_file: Path) -> None:
    # The profile of an earlier run must not be taken for this one's.
    data_dir = standin.parent / "data"
    data_dir.mkdir()
    (data_dir / "profile.toml").write_text('base_url = "http://127.0.0.1:9/v1"\napi_key = "old"\n')

    done = run(demo(standin, requests_file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[red]the answer to r00" in done.stdout
    assert "… 4 more …" in done.stdout
    assert "r11" in done.stdout
    assert "r12" not in done.stdout
    assert "r19" in done.stdout
    assert f"results.jsonl: {data_dir / 'results.jsonl'}" in done.stdout
    assert "20 of 20 requests" in done.stdout
    assert "done: nothing is left running" in done.stdout
    assert len((data_dir / "results.jsonl").read_text().splitlines()) == 20


@pytest.mark.parametrize(
    ("misbehaviour", "message"),
    [
        ("cannot install", "`slackwater engine install` failed"),
        ("dies at once", "slackwater up ended by itself, exit code 3"),
        ("loses a result", "19 results for 20 requests"),
        ("ends badly", "slackwater up ended with exit code 5"),
    ],
)
def test_a_failure_is_told_with_the_place_of_the_logs(
    standin: Path, requests_file: Path, misbehaviour: str, message: str
) -> None:
    done = run(demo(standin, requests_file), misbehaviour)
    text = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in text
    assert "up.log" in done.stdout


def test_a_process_that_is_left_behind_is_a_failure_and_does_not_stay(standin: Path, requests_file: Path) -> None:
    done = run(demo(standin, requests_file), "leaves a process behind")
    assert done.returncode == 1
    (line,) = [line for line in " ".join(done.stdout.split()).split("killed: ") if "(sleep)" in line]
    left = int(line.partition(" ")[0])
    assert not Path(f"/proc/{left}").exists()


def test_an_interrupted_demo_ends_its_service(standin: Path, requests_file: Path) -> None:
    with subprocess.Popen(
        demo(standin, requests_file), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the service answers" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) in {130, 0}, rest
    profile = (standin.parent / "data" / "profile.toml").read_text()
    port = int(profile.partition("127.0.0.1:")[2].partition("/")[0])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_the_tutorial_program_needs_nothing_but_url_and_key(requests_file: Path) -> None:
    service = FakeService()
    service.key = "sk-1"
    service.add_file("file-out", b'{"custom_id":"r00"}\n')
    service.life = [{"status": "completed", "output_file_id": "file-out"}]
    with serving(service) as url:
        environment = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-1"}
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "openai_batch.py", requests_file],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, '{"custom_id":"r00"}\n'), done.stderr
