"""Brings a batch's results to stdout as they come, or to files that appear whole."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from slackwater.client.replies import Batch

if TYPE_CHECKING:
    from slackwater.client import Client

STDOUT: Final = "-"

Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where the results go; - is stdout.")]
Errors = Annotated[
    str | None,
    typer.Option("--errors", metavar="FILE", help="Where the failed requests go; - is stdout (else nowhere)."),
]


def deliver(client: "Client", batch: Batch, *, output: str, errors: str | None) -> None:
    """Write the batch's output file, and its error file where asked for. Raises OSError and the client's errors.

    A file that the batch does not have is written empty: one left from an earlier batch would be taken for it.
    """
    fetch(client, batch.output_file_id, output)
    if errors is not None:
        fetch(client, batch.error_file_id, errors)


def fetch(client: "Client", file_id: str | None, to: str) -> None:
    """Write one file's content, or nothing where there is no such file."""
    with _opened(to) as sink:
        if file_id is not None:
            client.download(file_id, sink)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write that takes its name when the block ends, and leaves no trace where the block fails.

    What is not an ordinary file (a pipe, a device) is written as it is.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as device:
            yield device
        return
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _opened(to: str) -> Iterator[BinaryIO]:
    if to != STDOUT:
        with whole_file(Path(to)) as file:
            yield file
        return
    stdout = typer.get_binary_stream("stdout")
    yield stdout
    stdout.flush()
