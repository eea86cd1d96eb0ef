"""The objects of the API equal the contract's examples, key for key and value for value."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slackwater.api.dialect import AnthropicError, OpenAIError, anthropic_body, openai_body
from slackwater.api.wire import FileDeleted, batch_object, file_object, list_object
from slackwater.db.batches import BatchRecord
from slackwater.db.files import FileRecord
from slackwater.domain.ids import BatchId, FileId

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "cases/golden.json").read_text())


def sent(value: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(value))


def instant(seconds: int | None) -> Any:
    """An instant somewhere within that second: clients get whole seconds."""
    return None if seconds is None else datetime.fromtimestamp(seconds + 0.75, UTC)


def file_record(shown: dict[str, Any]) -> FileRecord:
    return FileRecord(
        id=FileId(shown["id"]),
        purpose=shown["purpose"],
        filename=shown["filename"],
        size_bytes=shown["bytes"],
        sha256="0" * 64,
        object_key="inputs/x",
        created_at=instant(shown["created_at"]),
        expires_at=instant(shown.get("expires_at")),
    )


def batch_record(shown: dict[str, Any]) -> BatchRecord:
    counts, usage = shown["request_counts"], shown["usage"] or {}
    stamps = ("created", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    return BatchRecord(
        **{key: shown[key] for key in ("id", "endpoint", "completion_window", "metadata", "model", "status")},
        **{key: shown[key] for key in ("input_file_id", "output_file_id", "error_file_id")},
        **{f"{stamp}_at": instant(shown[f"{stamp}_at"]) for stamp in stamps},
        paused_at=None,
        deadline=instant(shown["expires_at"]),
        errors=shown["errors"] and shown["errors"]["data"],
        total=counts["total"],
        succeeded=counts["completed"],
        errored=counts["failed"] // 2,
        cancelled=counts["failed"] - counts["failed"] // 2,
        expired=0,
        input_tokens=usage.get("input_tokens", 7),
        cached_tokens=0,
        output_tokens=usage.get("output_tokens", 7),
        reasoning_tokens=0,
    )


@pytest.mark.parametrize("name", ["file", "file_output", "file_no_expiry"])
def test_a_file_is_shown_as_the_contract_says(name: str) -> None:
    assert sent(file_object(file_record(GOLDEN[name]))) == GOLDEN[name]


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith("batch_") and name != "batch_list"])
def test_a_batch_is_shown_as_the_contract_says(name: str) -> None:
    assert sent(batch_object(batch_record(GOLDEN[name]))) == GOLDEN[name]


def test_keys_stand_in_the_contracts_order() -> None:
    assert list(sent(batch_object(batch_record(GOLDEN["batch_completed"])))) == list(GOLDEN["batch_completed"])
    assert list(sent(file_object(file_record(GOLDEN["file"])))) == list(GOLDEN["file"])


def test_lists_are_shown_as_the_contract_says() -> None:
    files = [file_object(file_record(shown)) for shown in GOLDEN["file_list"]["data"]]
    batches = [batch_object(batch_record(shown)) for shown in GOLDEN["batch_list"]["data"]]

    assert sent(list_object(files, [each.id for each in files], has_more=False)) == GOLDEN["file_list"]
    assert sent(list_object(batches, [each.id for each in batches], has_more=False)) == GOLDEN["batch_list"]
    assert sent(list_object([], [], has_more=False)) == GOLDEN["file_list_empty"]


def test_the_answer_to_a_delete_is_the_contracts() -> None:
    assert sent(FileDeleted(id=GOLDEN["file_deleted"]["id"])) == GOLDEN["file_deleted"]


def test_errors_are_shown_as_each_family_reads_them() -> None:
    openai, anthropic = GOLDEN["error_openai"]["error"], GOLDEN["error_anthropic"]

    assert json.loads(openai_body(OpenAIError(**openai))) == GOLDEN["error_openai"]
    assert json.loads(anthropic_body(AnthropicError(**anthropic["error"]), anthropic["request_id"])) == anthropic


def test_the_ids_of_a_record_are_its_own() -> None:
    assert batch_record(GOLDEN["batch_failed"]).id == BatchId("batch_abc123")
