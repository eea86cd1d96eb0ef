"""``slackwater run FILE > results.jsonl``: from a file of requests to their results, in one command."""

import time

import typer

from slackwater.cli.people_connect import ApiKey, BaseUrl, connect
from slackwater.cli.people_exits import code_of_batch, exits, say
from slackwater.cli.people_results import STDOUT, Errors, Output, deliver
from slackwater.cli.people_show import say_errors
from slackwater.cli.people_submit import Endpoint, InputFile, InvalidLines, Metadata, Window, metadata_of, submit
from slackwater.cli.people_watch import DEFAULT_INTERVAL_SECONDS, Interval, resumable, watch
from slackwater.client.replies import Batch


def run(
    file: InputFile,
    *,
    output: Output = STDOUT,
    errors: Errors = None,
    endpoint: Endpoint = None,
    window: Window = "24h",
    metadata: Metadata = None,
    invalid_lines: InvalidLines = None,
    interval: Interval = DEFAULT_INTERVAL_SECONDS,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Run a file of requests: upload, start a batch, watch it on stderr, write the results to stdout."""
    notes = metadata_of(metadata)
    with exits(), connect(base_url, api_key) as client:
        started_seconds = time.monotonic()
        batch = submit(client, file, endpoint=endpoint, window=window, metadata=notes, invalid_lines=invalid_lines)
        say(f"{batch.id} submitted")
        with resumable(batch.id):
            batch = watch(client, batch.id, interval_seconds=interval)
            seconds = time.monotonic() - started_seconds
            # A batch that failed validation has no results; an older file of this name is not touched.
            if batch.status != "failed":
                deliver(client, batch, output=output, errors=errors)
        say_errors(batch)
        say(summary(batch, seconds=seconds, output=output, errors=errors))
    raise typer.Exit(code_of_batch(batch))


def summary(batch: Batch, *, seconds: float, output: str, errors: str | None) -> str:
    """Write what became of the batch; ``seconds`` is the time from the upload's start to the batch's end."""
    counts, usage = batch.counts, batch.usage
    lines = [f"{batch.status}: {counts.completed:,} of {counts.total:,} requests succeeded, {counts.failed:,} failed"]
    speed = f"{seconds:,.1f} s"
    if counts.done and seconds > 0:
        speed += f", {counts.done / seconds:,.1f} requests/s"
    if usage is not None:
        lines.append(f"tokens:  {usage.input_tokens:,} in, {usage.output_tokens:,} out")
        if seconds > 0:
            speed += f", {usage.output_tokens / seconds:,.1f} output tokens/s"
    lines.append(f"time:    {speed}")
    if batch.output_file_id is not None:
        lines.append(f"results: {_place(output)}")
    if batch.error_file_id is not None:
        lines.append(f"errors:  {_place(errors) if errors else f'slackwater file content {batch.error_file_id}'}")
    return "\n".join(lines)


def _place(to: str) -> str:
    return "standard output" if to == STDOUT else to
