"""What a command answers on stdout: tables on a terminal, JSON in a pipe, one object a line."""

import sys
from collections.abc import Iterable
from itertools import islice

import msgspec
import typer

from slackwater.cli.people_exits import say
from slackwater.client.replies import Batch, Deleted, File, LineError

_SHOWN_ERRORS = 20


def show_batches(batches: Iterable[Batch], *, as_json: bool) -> None:
    """Show batches as rows; in a pipe each is written as soon as it is there."""
    if _as_json(as_json):
        _write_lines(batches)
        return
    from slackwater.cli import tables

    tables.show(tables.batch_table(batches))


def show_batch(batch: Batch, *, as_json: bool) -> None:
    """Show all there is about one batch, its validation errors included."""
    if _as_json(as_json):
        _write_lines([batch])
        return
    from slackwater.cli import tables

    tables.show(tables.batch_card(batch))
    if batch.errors is not None and batch.errors.data:
        tables.show(tables.error_table(batch.errors.data))


def show_files(files: Iterable[File], *, as_json: bool) -> None:
    """Show files as rows; in a pipe each is written as soon as it is there."""
    if _as_json(as_json):
        _write_lines(files)
        return
    from slackwater.cli import tables

    tables.show(tables.file_table(files))


def show_deleted(deleted: Deleted, *, as_json: bool) -> None:
    """Tell that a file is gone."""
    if _as_json(as_json):
        _write_lines([deleted])
    else:
        typer.echo(f"{deleted.id} deleted")


def say_errors(batch: Batch) -> None:
    """Tell on stderr why a batch failed validation: the first errors, and how many more there are."""
    errors = batch.errors.data if batch.errors is not None else []
    for error in islice(errors, _SHOWN_ERRORS):
        say(_sentence(error))
    if len(errors) > _SHOWN_ERRORS:
        say(f"and {len(errors) - _SHOWN_ERRORS} more: slackwater batch show {batch.id}")


def _sentence(error: LineError) -> str:
    where = "file" if error.line is None else f"line {error.line}"
    param = f" ({error.param})" if error.param else ""
    return f"{where}: {error.code or 'error'}{param}: {error.message or ''}"


def _as_json(asked: bool) -> bool:  # noqa: FBT001 -- a predicate over one flag
    return asked or not sys.stdout.isatty()


def _write_lines(objects: Iterable[Batch | File | Deleted]) -> None:
    stdout = typer.get_binary_stream("stdout")
    for item in objects:
        stdout.write(msgspec.json.encode(item) + b"\n")
    stdout.flush()
