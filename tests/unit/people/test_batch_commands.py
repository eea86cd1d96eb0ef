import json
from pathlib import Path

import pytest

from tests.unit.people.command_line import CommandLine
from tests.unit.people.fake_service import FakeService

OUTPUT = b'{"custom_id":"a"}\n'
ERRORS = b'{"custom_id":"b"}\n'


def with_results(service: FakeService) -> None:
    service.add_file("file-out", OUTPUT)
    service.add_file("file-err", ERRORS)
    service.add_batch(
        "batch_1",
        status="completed",
        output_file_id="file-out",
        error_file_id="file-err",
        request_counts={"total": 2, "completed": 1, "failed": 1},
    )


def test_submit_shows_the_batch_and_does_not_wait(
    command: CommandLine, service: FakeService, requests_file: Path
) -> None:
    result = command("batch", "submit", str(requests_file))
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert [shown["id"]] == list(service.batches)
    assert shown["status"] == "validating"
    assert not service.requests("GET", f"/v1/batches/{shown['id']}")


def test_submit_waits_for_the_end_where_asked(command: CommandLine, service: FakeService, requests_file: Path) -> None:
    service.life = [{"status": "expired"}]
    result = command("batch", "submit", str(requests_file), "--watch", "--interval", "0.05")
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (5, "expired")


def test_list_gives_one_object_a_line_newest_first_up_to_the_limit(command: CommandLine, service: FakeService) -> None:
    for number in range(5):
        service.add_batch(f"batch_{number}")
    lines = command("batch", "list", "--limit", "3").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["batch_4", "batch_3", "batch_2"]
    assert len(command("batch", "list", "--limit", "0").stdout.splitlines()) == 5


def test_show_gives_every_key(command: CommandLine, service: FakeService) -> None:
    with_results(service)
    shown = json.loads(command("batch", "show", "batch_1").stdout)
    assert shown == {**service.batches["batch_1"], "usage": None, "paused_at": None}


def test_watch_ends_with_the_batch_and_its_exit_code(command: CommandLine, service: FakeService) -> None:
    with_results(service)
    result = command("batch", "watch", "batch_1")
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (3, "completed")
    assert "completed: 2/2 done, 1 failed" in result.stderr


def test_cancel_shows_the_batch(command: CommandLine, service: FakeService) -> None:
    service.add_batch("batch_1")
    assert json.loads(command("batch", "cancel", "batch_1").stdout)["status"] == "cancelling"


def test_a_batch_is_paused_and_resumed(command: CommandLine, service: FakeService) -> None:
    service.add_batch("batch_1")
    assert json.loads(command("batch", "pause", "batch_1").stdout)["paused_at"] == 1_700_000_000
    assert json.loads(command("batch", "resume", "batch_1").stdout)["paused_at"] is None


def test_cancel_of_an_ended_batch_is_told(command: CommandLine, service: FakeService) -> None:
    with_results(service)
    result = command("batch", "cancel", "batch_1")
    assert result.exit_code == 1
    assert "Cannot cancel a batch with status 'completed'" in result.stderr


def test_results_are_written_and_failed_requests_pointed_at(command: CommandLine, service: FakeService) -> None:
    with_results(service)
    result = command("batch", "results", "batch_1")
    assert (result.exit_code, result.stdout_bytes) == (0, OUTPUT)
    assert "slackwater file content file-err" in result.stderr


def test_results_of_a_running_batch_are_not_there_yet(command: CommandLine, service: FakeService) -> None:
    service.add_batch("batch_1")
    result = command("batch", "results", "batch_1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has not ended (in_progress)" in result.stderr


def test_a_batch_that_failed_validation_has_no_results(command: CommandLine, service: FakeService) -> None:
    error = {"code": "empty_file", "message": "no lines", "param": None, "line": None}
    service.add_batch("batch_1", status="failed", errors={"object": "list", "data": [error]})
    result = command("batch", "results", "batch_1")
    assert result.exit_code == 4
    assert "file: empty_file: no lines" in result.stderr


@pytest.mark.parametrize("verb", ["show", "watch", "cancel", "results"])
def test_an_unknown_batch_is_told(command: CommandLine, verb: str) -> None:
    result = command("batch", verb, "batch_9")
    assert result.exit_code == 1
    assert "error: No batch found with id 'batch_9'. (HTTP 404)" in result.stderr


def test_files_are_uploaded_listed_read_and_deleted(command: CommandLine, service: FakeService, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"hello\n")
    made = json.loads(command("file", "upload", str(path), "--purpose", "user_data", "--expires-after", "3600").stdout)
    assert (made["filename"], made["purpose"], made["bytes"]) == ("notes.txt", "user_data", 6)
    assert made["expires_at"] == made["created_at"] + 3600
    listed = command("file", "list", "--purpose", "user_data").stdout.splitlines()
    assert [json.loads(line)["id"] for line in listed] == [made["id"]]
    assert command("file", "content", made["id"]).stdout_bytes == b"hello\n"
    copy = tmp_path / "copy.txt"
    assert command("file", "content", made["id"], "-o", str(copy)).stdout == ""
    assert copy.read_bytes() == b"hello\n"
    gone = json.loads(command("file", "delete", made["id"]).stdout)
    assert gone == {"id": made["id"], "object": "file", "deleted": True}
    assert command("file", "content", "file-9").exit_code == 1


def test_options_come_before_the_environment(command: CommandLine, service: FakeService) -> None:
    service.key = "from-option"
    assert command("batch", "list").exit_code == 1
    assert command("batch", "list", "--api-key", "from-option").exit_code == 0


def test_where_no_service_is_known_it_says_how_to_start_one(tmp_path: Path) -> None:
    result = CommandLine(environment={"HOME": str(tmp_path)})("batch", "list")
    assert result.exit_code == 1
    assert "slackwater up" in result.stderr


def test_the_profile_of_a_data_directory_is_used(base_url: str, service: FakeService, tmp_path: Path) -> None:
    service.key = "sk-profile"
    (tmp_path / "profile.toml").write_text(f'base_url = "{base_url}"\napi_key = "sk-profile"\ntenant = "me"\n')
    command = CommandLine(environment={"HOME": "/nowhere", "SLACKWATER_DATA_DIR": str(tmp_path)})
    assert command("batch", "list").exit_code == 0
