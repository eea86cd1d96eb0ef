"""Rows for operators: a table on a terminal, JSON lines in a pipe."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import datetime

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slackwater.cli.people_text import plain


def show_rows(rows: Sequence[object], *, as_json: bool) -> None:
    """Show dataclasses of one kind, one a row."""
    fields = [dict(_fields(row)) for row in rows]
    if as_json or not sys.stdout.isatty():
        for row in fields:
            typer.echo(json.dumps(row, default=_jsonable, ensure_ascii=False))
        return
    if not fields:
        typer.echo("none", err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in fields[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in fields:
        table.add_row(*(Text(plain(_cell(value))) for value in row.values()))
    Console().print(table)


def _fields(row: object) -> list[tuple[str, object]]:
    assert dataclasses.is_dataclass(row)
    return [(field.name, getattr(row, field.name)) for field in dataclasses.fields(row)]


def _jsonable(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case tuple() | list():
            return ", ".join(map(str, value))
        case float():
            return f"{value:,.6g}"
        case _:
            return str(value)
