"""``slackwater file``: a customer's files on the service."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.people_connect import ApiKey, AsJson, BaseUrl, connect
from slackwater.cli.people_exits import exits
from slackwater.cli.people_results import STDOUT, Output, fetch
from slackwater.cli.people_show import show_deleted, show_files
from slackwater.cli.progress_display import upload_display
from slackwater.client.multipart_body import source_of_path

app = typer.Typer(name="file", help="Files on the service: upload, list, read, delete.", no_args_is_help=True)

FileId = Annotated[str, typer.Argument(metavar="FILE_ID", help="file-…")]


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to upload.", exists=True, dir_okay=False)],
    *,
    purpose: Annotated[str, typer.Option(help="What it is for.")] = "batch",
    expires_after: Annotated[
        int | None, typer.Option("--expires-after", metavar="SECONDS", help="Delete it so long after its creation.")
    ] = None,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Upload a file and show it."""
    with exits(), connect(base_url, api_key) as client:
        source = source_of_path(file)
        with upload_display(source.length_bytes) as sent:
            uploaded = client.create_file(source, purpose=purpose, expires_after_seconds=expires_after, sent=sent)
        show_files([uploaded], as_json=as_json)


@app.command("list")
def list_files(
    *,
    purpose: Annotated[str | None, typer.Option(help="Only files of this purpose.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many, newest first; 0 is all.")] = 20,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List files, newest first."""
    with exits(), connect(base_url, api_key) as client:
        found = client.files(purpose=purpose, page_size=min(limit or 1000, 1000))
        show_files(islice(found, limit or None), as_json=as_json)


@app.command()
def content(file_id: FileId, *, output: Output = STDOUT, base_url: BaseUrl = None, api_key: ApiKey = None) -> None:
    """Write a file's content."""
    with exits(), connect(base_url, api_key) as client:
        fetch(client, file_id, output)


@app.command()
def delete(
    file_ids: Annotated[list[str], typer.Argument(metavar="FILE_ID...", help="file-…")],
    *,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Delete files."""
    with exits(), connect(base_url, api_key) as client:
        for file_id in file_ids:
            show_deleted(client.delete_file(file_id), as_json=as_json)
