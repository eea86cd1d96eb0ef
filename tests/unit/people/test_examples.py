import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LINES = [json.loads(line) for line in (EXAMPLES / "tickets.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_tickets_are_what_their_generator_writes(tmp_path: Path) -> None:
    written = tmp_path / "tickets.jsonl"
    subprocess.run([sys.executable, EXAMPLES / "make_tickets.py", written], check=True)
    assert written.read_bytes() == (EXAMPLES / "tickets.jsonl").read_bytes()


def test_the_tickets_are_a_valid_batch_of_one_model() -> None:
    assert len(LINES) >= 200
    assert max(Counter(line["custom_id"] for line in LINES).values()) == 1
    assert {line["method"] for line in LINES} == {"POST"}
    assert {line["url"] for line in LINES} == {"/v1/chat/completions"}
    assert {line["body"]["model"] for line in LINES} == {"smollm2-135m-instruct"}
    assert {line["body"]["temperature"] for line in LINES} == {0}


def test_the_tickets_take_well_under_a_minute_on_a_small_machine() -> None:
    assert all(8 <= line["body"]["max_tokens"] <= 40 for line in LINES)
    assert sum(line["body"]["max_tokens"] for line in LINES) <= 4000


def test_every_kind_is_there_and_the_first_lines_show_them_all() -> None:
    kinds = {line["custom_id"].partition("-")[0] for line in LINES}
    assert kinds == {"capital", "question", "summary", "ticket"}
    assert {line["custom_id"].partition("-")[0] for line in LINES[:12]} == kinds


def test_a_ticket_is_answered_with_a_queue_and_nothing_else() -> None:
    choices = [line["body"].get("structured_outputs") for line in LINES if line["custom_id"].startswith("ticket-")]
    assert len(choices) == 60
    assert all(choice == {"choice": ["billing", "technical", "account", "shipping"]} for choice in choices)
