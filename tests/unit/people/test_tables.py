import io
from typing import Any

from rich.console import Console
from rich.table import Table

from slackwater.cli.tables import batch_card, batch_table, error_table, file_table, show
from slackwater.client.replies import Batch, File, LineError, RequestCounts, Usage

BATCH_ID = f"batch_{'0' * 31}1"


def drawn(*tables: Table, width: int = 160) -> str:
    screen = io.StringIO()
    show(*tables, console=Console(file=screen, width=width, color_system=None))
    return screen.getvalue()


def batch(**changes: object) -> Batch:
    fields: dict[str, Any] = {
        "id": BATCH_ID,
        "endpoint": "/v1/chat/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "completed",
        "created_at": 1_700_000_000,
        "request_counts": RequestCounts(total=2000, completed=1998, failed=2),
        **changes,
    }
    return Batch(**fields)


def test_a_list_of_batches_has_one_row_each() -> None:
    lines = drawn(batch_table([batch(model="m"), batch(status="validating", request_counts=None)])).splitlines()
    assert len(lines) == 3
    assert lines[1].split() == [BATCH_ID, "completed", "m", "2,000/2,000", "2", "2023-11-14", "22:13"]
    assert "0/0" in lines[2]


def test_an_id_is_whole_on_a_narrow_terminal() -> None:
    assert BATCH_ID in drawn(batch_table([batch(model="a-model-with-a-long-name")]), width=60)
    file = File(id=BATCH_ID, bytes=0, created_at=0, filename="a-long-file-name.jsonl" * 3, purpose="batch")
    assert BATCH_ID in drawn(file_table([file]), width=60)


def test_a_card_tells_what_is_set_and_nothing_else() -> None:
    card = drawn(
        batch_card(
            batch(usage=Usage(input_tokens=1200, output_tokens=7), metadata={"team": "blue"}, error_file_id="file-e")
        )
    )
    assert "1,200 in, 7 out" in card
    assert "metadata team" in card
    assert "file-e" in card
    assert "output file" not in card


def test_errors_are_listed_with_their_lines() -> None:
    table = drawn(
        error_table([LineError(code="invalid_url", message="m", param="url", line=3), LineError(code="empty_file")])
    )
    assert table.splitlines()[1].split() == ["3", "invalid_url", "url", "m"]
    assert table.splitlines()[2].split() == ["empty_file"]


def test_foreign_text_is_neither_markup_nor_control() -> None:
    file = File(id="file-1", bytes=1500, created_at=0, filename="[bold]\x1b[2J\n.jsonl", purpose="batch")
    table = drawn(file_table([file]))
    assert "[bold]\\x1b[2J" in table
    assert "1.5 kB" in table
    assert "\x1b" not in table
