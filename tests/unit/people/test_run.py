import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slackwater.cli.run import summary
from slackwater.client.batches import get_batch
from slackwater.client.calls import Reply
from slackwater.client.replies import Batch
from tests.unit.people.command_line import CommandLine
from tests.unit.people.fake_service import Answer, CutContent, FakeService, Json, whole_batch

OUTPUT = b'{"custom_id":"a"}\n'
ERRORS = b'{"custom_id":"b"}\n'
QUICK = ("--interval", "0.05")


def ends(service: FakeService, status: str, *, completed: int = 2, failed: int = 0, **changes: object) -> None:
    """Let the next batch run and end so, with the files that belong to it."""
    end: Json = {
        "status": status,
        "request_counts": {"total": completed + failed, "completed": completed, "failed": failed},
        "usage": {"input_tokens": 1200, "output_tokens": 300, "total_tokens": 1500},
        **changes,
    }
    if completed:
        service.add_file("file-out", OUTPUT, purpose="batch_output")
        end["output_file_id"] = "file-out"
    if failed:
        service.add_file("file-err", ERRORS, purpose="batch_output")
        end["error_file_id"] = "file-err"
    service.life = [{"status": "in_progress"}, end]


def batch(**changes: object) -> Batch:
    body = json.dumps(whole_batch("batch_1", **changes)).encode()
    return get_batch("batch_1").decode(Reply(status=200, headers={}, body=body))


def test_results_alone_go_to_stdout_and_everything_else_to_stderr(
    command: CommandLine, service: FakeService, requests_file: Path
) -> None:
    ends(service, "completed")
    result = command("run", str(requests_file), *QUICK)
    assert result.exit_code == 0
    assert result.stdout_bytes == OUTPUT
    assert "2 of 2 requests succeeded" in result.stderr
    assert "1,200 in, 300 out" in result.stderr
    assert "results: standard output" in result.stderr


def test_the_batch_is_made_as_the_options_say(command: CommandLine, service: FakeService, requests_file: Path) -> None:
    ends(service, "completed")
    command(
        "run", str(requests_file), "--window", "7d", "--metadata", "team=blue", "--metadata", "note=a=b",
        "--invalid-lines", "error", *QUICK,
    )  # fmt: skip
    asked = json.loads(service.requests("POST", "/v1/batches")[0].body)
    assert asked["endpoint"] == "/v1/chat/completions"
    assert asked["completion_window"] == "7d"
    assert asked["metadata"] == {"team": "blue", "note": "a=b"}
    assert asked["invalid_lines"] == "error"
    assert service.contents[asked["input_file_id"]] == requests_file.read_bytes()


def test_results_and_errors_go_to_files_that_appear_whole(
    command: CommandLine, service: FakeService, requests_file: Path, tmp_path: Path
) -> None:
    ends(service, "completed", completed=1, failed=1)
    output, errors = tmp_path / "out.jsonl", tmp_path / "err.jsonl"
    service.faults["GET /v1/files/file-out/content"].append(CutContent(after_bytes=3))
    result = command("run", str(requests_file), "--output", str(output), "--errors", str(errors), *QUICK)
    assert result.exit_code == 3
    assert (output.read_bytes(), errors.read_bytes(), result.stdout) == (OUTPUT, ERRORS, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err.jsonl", "in.jsonl", "out.jsonl"]


def test_a_download_that_fails_leaves_the_old_file_and_no_trace(
    command: CommandLine, service: FakeService, requests_file: Path, tmp_path: Path
) -> None:
    ends(service, "completed")
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    del service.files["file-out"]
    result = command("run", str(requests_file), "--output", str(output), *QUICK)
    assert result.exit_code == 1
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    assert "slackwater batch results batch_" in result.stderr


def test_all_results_can_go_to_one_stream(command: CommandLine, service: FakeService, requests_file: Path) -> None:
    ends(service, "completed", completed=1, failed=1)
    assert command("run", str(requests_file), "--errors", "-", *QUICK).stdout_bytes == OUTPUT + ERRORS


def test_a_file_the_batch_does_not_have_is_written_empty_over_an_old_one(
    command: CommandLine, service: FakeService, requests_file: Path, tmp_path: Path
) -> None:
    ends(service, "completed", completed=0, failed=2)
    output = tmp_path / "out.jsonl"
    output.write_text("old results")
    assert command("run", str(requests_file), "--output", str(output), *QUICK).exit_code == 3
    assert output.read_text() == ""


def test_a_device_is_written_and_not_replaced(command: CommandLine, service: FakeService, requests_file: Path) -> None:
    ends(service, "completed")
    assert command("run", str(requests_file), "--output", "/dev/null", *QUICK).exit_code == 0
    assert Path("/dev/null").is_char_device()


def test_a_link_to_the_output_stays_a_link(
    command: CommandLine, service: FakeService, requests_file: Path, tmp_path: Path
) -> None:
    ends(service, "completed")
    target, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    command("run", str(requests_file), "--output", str(link), *QUICK)
    assert link.is_symlink()
    assert target.read_bytes() == OUTPUT


@pytest.mark.parametrize(
    ("status", "completed", "failed", "code"),
    [("completed", 2, 0, 0), ("completed", 1, 1, 3), ("expired", 1, 1, 5), ("cancelled", 1, 1, 6)],
)
def test_the_exit_code_says_how_the_batch_ended_and_what_is_done_is_written(
    command: CommandLine,
    service: FakeService,
    requests_file: Path,
    status: str,
    completed: int,
    failed: int,
    code: int,
) -> None:
    ends(service, status, completed=completed, failed=failed)
    result = command("run", str(requests_file), *QUICK)
    assert (result.exit_code, result.stdout_bytes) == (code, OUTPUT)
    if failed:
        assert "errors:  slackwater file content file-err" in result.stderr


def test_a_file_that_fails_validation_is_told_line_by_line(
    command: CommandLine, service: FakeService, requests_file: Path, tmp_path: Path
) -> None:
    errors = [
        {"code": "invalid_url", "message": f"bad \x1b[2J {line}", "param": "url", "line": line} for line in range(1, 31)
    ]
    ends(service, "failed", completed=0, errors={"object": "list", "data": errors})
    errors.append({**errors[0], "line": 31})
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    result = command("run", str(requests_file), "--output", str(output), *QUICK)
    assert result.exit_code == 4
    assert "line 1 and 1 more: invalid_url" in result.stderr
    assert "line 20: invalid_url (url): bad \\x1b[2J 20" in result.stderr
    assert "line 21:" not in result.stderr
    assert "and 10 more: slackwater batch show batch_" in result.stderr
    assert output.read_text() == "old"


def test_requests_come_from_stdin(command: CommandLine, service: FakeService, requests_file: Path) -> None:
    ends(service, "completed")
    content = b"\xef\xbb\xbf\r\n" + requests_file.read_bytes()
    result = command("run", "-", *QUICK, stdin=content)
    assert result.exit_code == 0
    uploaded = json.loads(service.requests("POST", "/v1/batches")[0].body)["input_file_id"]
    assert service.contents[uploaded] == content


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{", b"[]", b'{"custom_id":"a"}\n', b'{"url":5}', b"\xff\xff\n"])
def test_a_file_that_does_not_say_its_endpoint_is_not_sent(
    command: CommandLine, service: FakeService, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    result = command("run", str(path))
    assert (result.exit_code, service.seen) == (1, [])
    assert "--endpoint" in result.stderr


def test_an_endpoint_that_is_given_is_not_looked_for(
    command: CommandLine, service: FakeService, tmp_path: Path
) -> None:
    ends(service, "completed")
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"not json\n")
    assert command("run", str(path), "--endpoint", "/v1/embeddings", *QUICK).exit_code == 0
    assert json.loads(service.requests("POST", "/v1/batches")[0].body)["endpoint"] == "/v1/embeddings"


def test_a_refused_batch_leaves_no_file_behind(command: CommandLine, service: FakeService, requests_file: Path) -> None:
    result = command("run", str(requests_file), "--endpoint", "/v1/nonsense")
    assert result.exit_code == 1
    assert "error: Invalid value: '/v1/nonsense'." in result.stderr
    assert service.files == {}


def test_a_missing_file_is_told(command: CommandLine, tmp_path: Path) -> None:
    result = command("run", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 1
    assert result.stderr == f"error: {tmp_path / 'none.jsonl'}: No such file or directory\n"


@pytest.mark.parametrize("arguments", [("run",), ("run", "f", "--metadata", "nonsense"), ("run", "f", "--bogus")])
def test_wrong_usage_is_its_own_exit_code(command: CommandLine, arguments: tuple[str, ...]) -> None:
    assert command(*arguments).exit_code == 2


def test_a_service_that_does_not_serve_is_its_own_exit_code(
    command: CommandLine, service: FakeService, requests_file: Path
) -> None:
    service.faults["POST /v1/files"].append(Answer(status=503, headers={"x-should-retry": "false"}))
    assert command("run", str(requests_file)).exit_code == 7


def test_an_interrupted_watch_leaves_the_batch_running_and_says_how_to_come_back(
    base_url: str, service: FakeService, requests_file: Path, tmp_path: Path
) -> None:
    service.life = [{"status": "in_progress"}]
    watching = threading.Event()
    service.on_look = lambda looks: watching.set() if looks > 1 else None
    environment = {**os.environ, "HOME": str(tmp_path), "SLACKWATER_BASE_URL": base_url, "SLACKWATER_API_KEY": "k"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.people.command_line", "run", str(requests_file), *QUICK],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert watching.wait(timeout=60)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    (batch_id,) = service.batches
    assert (process.returncode, stdout) == (130, b"")
    assert f"interrupted: {batch_id} goes on" in stderr.decode()
    assert f"slackwater batch watch {batch_id}" in stderr.decode()
    assert not service.requests("POST", f"/v1/batches/{batch_id}/cancel")


def test_the_help_tells_the_exit_codes(command: CommandLine) -> None:
    text = " ".join(command("run", "--help").output.split())
    assert "3 completed with failed requests" in text


def test_the_summary_tells_speed_only_where_there_was_work() -> None:
    done = batch(
        status="completed",
        request_counts={"total": 200, "completed": 198, "failed": 2},
        usage={"input_tokens": 6120, "output_tokens": 2340, "total_tokens": 8460},
        output_file_id="file-out",
        error_file_id="file-err",
    )
    assert summary(done, seconds=10.0, output="-", errors=None).split("\n") == [
        "completed: 198 of 200 requests succeeded, 2 failed",
        "tokens:  6,120 in, 2,340 out",
        "time:    10.0 s, 20.0 requests/s, 234.0 output tokens/s",
        "results: standard output",
        "errors:  slackwater file content file-err",
    ]
    assert summary(batch(status="failed"), seconds=0.0, output="-", errors=None).split("\n") == [
        "failed: 0 of 0 requests succeeded, 0 failed",
        "time:    0.0 s",
    ]
