"""What a command answers on stdout: tables on a terminal, JSON in a pipe, one object a line."""

import sys
from collections.abc import Iterable
from itertools import islice

import msgspec
import typer

from slackwater.cli.people_exits import say
from slackwater.client.replies import Batch, Deleted, File, LineError

_SHOWN_REASONS = 20


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
    """Tell on stderr why a batch failed validation: each reason once, with the first line that has it."""
    same: dict[str, list[LineError]] = {}
    for error in batch.errors.data if batch.errors is not None else []:
        same.setdefault(_reason(error), []).append(error)
    for reason, errors in islice(same.items(), _SHOWN_REASONS):
        say(f"{_places(errors)}: {reason}")
    if len(same) > _SHOWN_REASONS:
        say(f"and {len(same) - _SHOWN_REASONS} more: slackwater batch show {batch.id}")


def _places(errors: list[LineError]) -> str:
    first = "file" if errors[0].line is None else f"line {errors[0].line}"
    return first if len(errors) == 1 else f"{first} and {len(errors) - 1} more"


def _reason(error: LineError) -> str:
    param = f" ({error.param})" if error.param else ""
    return f"{error.code or 'error'}{param}: {error.message or ''}"


def _as_json(asked: bool) -> bool:  # noqa: FBT001 -- a predicate over one flag
    return asked or not sys.stdout.isatty()


def _write_lines(objects: Iterable[Batch | File | Deleted]) -> None:
    stdout = typer.get_binary_stream("stdout")
    for item in objects:
        stdout.write(msgspec.json.encode(item) + b"\n")
    stdout.flush()
