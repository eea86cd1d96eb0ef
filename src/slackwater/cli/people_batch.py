"""``slackwater batch``: a customer's batches."""

from itertools import islice
from typing import Annotated

import typer

from slackwater.cli.people_connect import ApiKey, AsJson, BaseUrl, connect
from slackwater.cli.people_exits import EPILOG, ExitCode, code_of_batch, exits, say
from slackwater.cli.people_results import STDOUT, Errors, Output, deliver
from slackwater.cli.people_show import say_errors, show_batch, show_batches
from slackwater.cli.people_submit import Endpoint, InputFile, InvalidLines, Metadata, Window, metadata_of, submit
from slackwater.cli.people_watch import DEFAULT_INTERVAL_SECONDS, Interval, resumable, watch

app = typer.Typer(name="batch", help="Batches: submit, list, show, watch, cancel, fetch results.", no_args_is_help=True)

BatchId = Annotated[str, typer.Argument(metavar="BATCH_ID", help="batch_…")]


@app.command("submit", epilog=EPILOG)
def submit_file(
    file: InputFile,
    *,
    wait: Annotated[bool, typer.Option("--watch", help="Wait for the end, with progress on stderr.")] = False,
    endpoint: Endpoint = None,
    window: Window = "24h",
    metadata: Metadata = None,
    invalid_lines: InvalidLines = None,
    interval: Interval = DEFAULT_INTERVAL_SECONDS,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Upload a file of requests and start a batch of it."""
    notes = metadata_of(metadata)
    with exits(), connect(base_url, api_key) as client:
        batch = submit(client, file, endpoint=endpoint, window=window, metadata=notes, invalid_lines=invalid_lines)
        if wait:
            say(f"{batch.id} submitted")
            with resumable(batch.id):
                batch = watch(client, batch.id, interval_seconds=interval)
        show_batch(batch, as_json=as_json)
    raise typer.Exit(code_of_batch(batch))


@app.command("list")
def list_batches(
    *,
    limit: Annotated[int, typer.Option(min=0, help="At most so many, newest first; 0 is all.")] = 20,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List batches, newest first."""
    with exits(), connect(base_url, api_key) as client:
        found = client.batches(page_size=min(limit or 100, 100))
        show_batches(islice(found, limit or None), as_json=as_json)


@app.command()
def show(batch_id: BatchId, *, as_json: AsJson = False, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Show one batch, its validation errors included."""
    with exits(), connect(base_url, api_key) as client:
        show_batch(client.get_batch(batch_id), as_json=as_json)


@app.command("watch", epilog=EPILOG)
def watch_batch(
    batch_id: BatchId,
    *,
    interval: Interval = DEFAULT_INTERVAL_SECONDS,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Wait for a batch's end, with progress on stderr, then show it."""
    with exits(), connect(base_url, api_key) as client:
        with resumable(batch_id):
            batch = watch(client, batch_id, interval_seconds=interval)
        show_batch(batch, as_json=as_json)
    raise typer.Exit(code_of_batch(batch))


@app.command()
def cancel(batch_id: BatchId, *, as_json: AsJson = False, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Cancel a batch; the results of what is done stay."""
    with exits(), connect(base_url, api_key) as client:
        show_batch(client.cancel_batch(batch_id), as_json=as_json)


@app.command()
def pause(batch_id: BatchId, *, as_json: AsJson = False, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Run nothing more of a batch for now; what is done stays, and so does its deadline."""
    with exits(), connect(base_url, api_key) as client:
        show_batch(client.pause_batch(batch_id), as_json=as_json)


@app.command()
def resume(batch_id: BatchId, *, as_json: AsJson = False, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Let a paused batch run on."""
    with exits(), connect(base_url, api_key) as client:
        show_batch(client.resume_batch(batch_id), as_json=as_json)


@app.command()
def results(
    batch_id: BatchId,
    *,
    output: Output = STDOUT,
    errors: Errors = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Write the results of a batch that has ended."""
    with exits(), connect(base_url, api_key) as client:
        batch = client.get_batch(batch_id)
        if not batch.ended:
            say(f"error: {batch_id} has not ended ({batch.status}): slackwater batch watch {batch_id}")
            raise typer.Exit(ExitCode.ERROR)
        if batch.status == "failed":
            say(f"error: {batch_id} failed validation and has no results")
            say_errors(batch)
            raise typer.Exit(ExitCode.FAILED_VALIDATION)
        deliver(client, batch, output=output, errors=errors)
        if errors is None and batch.error_file_id is not None:
            say(f"{batch.counts.failed:,} requests failed: slackwater file content {batch.error_file_id}")
