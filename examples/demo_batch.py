"""The demo's customer: sends a batch with the stock OpenAI SDK, waits with a live bar, shows the answers."""

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import openai
from demo_service import DemoFailed, Service
from openai.types import Batch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

ENDED = {"completed", "failed", "expired", "cancelled"}
FIRST_ROWS = 12
LAST_ROWS = 4


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What came back."""

    lines: dict[str, Any]
    """The output line by custom_id."""
    batch: Batch
    files: list[Path]
    waited_seconds: float
    """From create until the engine took the first request: the model was loading."""
    answered_seconds: float
    """From then on."""
    wrong: list[str] = field(default_factory=list)


def send(service: Service, requests: Path, data_dir: Path, console: Console, *, limit_seconds: float) -> Answers:
    """Run the batch to its end. Raises DemoFailed."""
    without_proxy()
    try:
        end_earlier_batches(openai.OpenAI(base_url=service.base_url, api_key=service.api_key))
        # From here on it is the program of any batch tutorial; only base_url and api_key are ours.
        client = openai.OpenAI(base_url=service.base_url, api_key=service.api_key)
        with requests.open("rb") as file:
            uploaded = client.files.create(file=file, purpose="batch")
        batch = client.batches.create(
            input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        batch, seconds = watch(client, batch, service, console, limit_seconds)
        files = [
            download(client, file_id, data_dir / name)
            for name, file_id in (("results.jsonl", batch.output_file_id), ("errors.jsonl", batch.error_file_id))
            if file_id is not None
        ]
    except openai.OpenAIError as error:
        raise DemoFailed(f"the SDK says: {error}") from error
    output = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    answered_seconds = time_to_answer(batch, output, seconds)
    return Answers(
        lines={line["custom_id"]: line for line in output},
        batch=batch,
        files=files,
        waited_seconds=seconds - answered_seconds,
        answered_seconds=answered_seconds,
        wrong=faults(batch, requests, output),
    )


def watch(
    client: openai.OpenAI, batch: Batch, service: Service, console: Console, limit_seconds: float
) -> tuple[Batch, float]:
    """Wait for the end; return the batch, and how many seconds that took."""
    started = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("validating", total=None, tokens="")
        while batch.status not in ENDED:
            service.check()
            if time.monotonic() - started > limit_seconds:
                raise DemoFailed(f"{batch.id} has not ended within {limit_seconds:.0f} s")
            time.sleep(0.2)
            batch = client.batches.retrieve(batch.id)
            done, total = done_of(batch)
            bar.update(
                task,
                description=batch.status.replace("_", " "),
                completed=done,
                total=total or None,
                tokens=f"{batch.usage.output_tokens} tokens" if batch.usage else "",
            )
    return batch, time.monotonic() - started


def time_to_answer(batch: Batch, output: list[Any], seconds: float) -> float:
    """Tell for how many of the ``seconds`` the engine was at work: from its first answer's own time stamp on."""
    stamps = [line["response"]["body"].get("created") for line in output if succeeded(line)]
    first: int | None = min(filter(None, stamps), default=None)
    if first is None or batch.completed_at is None:
        return seconds
    return min(max(batch.completed_at - first, 1.0), seconds)


def show(answers: Answers, requests: Path, console: Console) -> None:
    """Print the answers, where the files are, and how fast it went."""
    table = Table("custom_id", "answer", "tokens", title=f"{answers.batch.id}: {answers.batch.status}")
    table.columns[2].justify = "right"
    ids = [json.loads(line)["custom_id"] for line in requests.read_bytes().splitlines()]
    for custom_id in ids[:FIRST_ROWS]:
        table.add_row(*map(Text, (custom_id, *answer(answers.lines.get(custom_id)))))
    if (more := len(ids) - FIRST_ROWS - LAST_ROWS) > 0:
        table.add_row("…", f"… {more} more …", "")
    for custom_id in ids[max(FIRST_ROWS, len(ids) - LAST_ROWS) :]:
        table.add_row(*map(Text, (custom_id, *answer(answers.lines.get(custom_id)))))
    console.print(table)
    for file in answers.files:
        console.print(f"{file.name}: {file}", markup=False, soft_wrap=True)
    done, total = done_of(answers.batch)
    console.print(f"{done} of {total} requests: {speed(answers.batch, answers.answered_seconds)}")
    console.print(
        f"{answers.waited_seconds:.0f} s until the model was loaded, {answers.answered_seconds:.0f} s to answer"
    )


def answer(line: Any) -> tuple[str, str]:
    """Return the text and the number of output tokens of one line."""
    if line is None:
        return "(no line came back)", ""
    if not succeeded(line):
        return f"(failed: {line['error'] or line['response']['body']})", ""
    body = line["response"]["body"]
    return " ".join(body["choices"][0]["message"]["content"].split()), str(body["usage"]["completion_tokens"])


def succeeded(line: Any) -> bool:
    """Tell whether a line carries an answer."""
    return line["error"] is None and line["response"]["status_code"] == HTTPStatus.OK


def speed(batch: Batch, seconds: float) -> str:
    """Write how fast it went."""
    done, _ = done_of(batch)
    if not done or seconds <= 0:
        return ""
    tokens = batch.usage.output_tokens if batch.usage else 0
    return f"{done / seconds:.1f} requests/s, {tokens / seconds:.0f} tokens/s"


def faults(batch: Batch, requests: Path, output: list[Any]) -> list[str]:
    """List what is not as it must be."""
    wrong = []
    if batch.status != "completed":
        reasons = [error.message for error in (batch.errors.data if batch.errors and batch.errors.data else [])]
        wrong.append(f"the batch ended as {batch.status}: {reasons[:3]}")
    asked = Counter(json.loads(line)["custom_id"] for line in requests.read_bytes().splitlines())
    if Counter(line["custom_id"] for line in output) != asked:
        wrong.append(f"{len(output)} results for {asked.total()} requests, not each exactly once")
    failed = [line for line in output if not succeeded(line)]
    if failed:
        wrong.append(f"{len(failed)} requests failed, the first of them: {answer(failed[0])[0]}")
    return wrong


def end_earlier_batches(client: openai.OpenAI) -> None:
    """Cancel what an interrupted demo left unfinished in its data directory: it would slow this one down."""
    for batch in client.batches.list(limit=100):
        if batch.status in {"validating", "in_progress"}:
            client.batches.cancel(batch.id)


def done_of(batch: Batch) -> tuple[int, int]:
    """Return how many requests are done, and how many there are."""
    counts = batch.request_counts
    return (counts.completed + counts.failed, counts.total) if counts else (0, 0)


def download(client: openai.OpenAI, file_id: str, to: Path) -> Path:
    """Write a file's content."""
    client.files.content(file_id).write_to_file(to)
    return to


def without_proxy() -> None:
    """Let the SDK reach this machine directly where the environment names a proxy."""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1"]))
