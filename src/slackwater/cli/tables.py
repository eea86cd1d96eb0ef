"""Files, batches and errors as tables for a terminal. Foreign text is shown, never obeyed."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slackwater.cli.people_text import moment, plain, size
from slackwater.client.replies import Batch, File, LineError

_STYLES = {
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "cancelled": "yellow",
    "cancelling": "yellow",
    "in_progress": "cyan",
    "finalizing": "cyan",
}


def batch_table(batches: Iterable[Batch]) -> Table:
    """One row a batch."""
    rows = list(batches)
    titles = ("batch", "status", "model", "done", "failed", "created (UTC)", "ends by (UTC)")
    table = _table(*titles, id_width=_widest(batch.id for batch in rows))
    for batch in rows:
        counts = batch.counts
        table.add_row(
            _cell(batch.id),
            Text(plain(batch.status), style=_STYLES.get(batch.status, "")),
            _cell(batch.model),
            f"{counts.done:,}/{counts.total:,}",
            f"{counts.failed:,}" if counts.failed else "",
            moment(batch.created_at),
            moment(batch.expires_at),
        )
    return table


def batch_card(batch: Batch) -> Table:
    """One batch, one row a fact; what is not set is left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in _facts(batch):
        if value:
            table.add_row(name, Text(plain(value)))
    return table


def error_table(errors: Iterable[LineError]) -> Table:
    """One row a validation error."""
    table = _table("line", "code", "param", "message")
    for error in errors:
        line = "" if error.line is None else str(error.line)
        table.add_row(line, _cell(error.code), _cell(error.param), _cell(error.message))
    return table


def file_table(files: Iterable[File]) -> Table:
    """One row a file."""
    rows = list(files)
    titles = ("file", "name", "purpose", "size", "created (UTC)", "expires (UTC)")
    table = _table(*titles, id_width=_widest(file.id for file in rows))
    for file in rows:
        table.add_row(
            _cell(file.id),
            _cell(file.filename),
            _cell(file.purpose),
            size(file.bytes),
            moment(file.created_at),
            moment(file.expires_at),
        )
    return table


def show(*tables: Table, console: Console | None = None) -> None:
    """Print tables on stdout (or ``console``)."""
    target = console or Console()
    for table in tables:
        target.print(table)


def _facts(batch: Batch) -> list[tuple[str, str]]:
    counts, usage = batch.counts, batch.usage
    facts = [
        ("batch", batch.id),
        ("status", batch.status),
        ("model", batch.model or ""),
        ("endpoint", batch.endpoint),
        ("window", batch.completion_window),
        ("requests", f"{counts.done:,} done of {counts.total:,}, {counts.failed:,} failed"),
        ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out" if usage else ""),
        ("input file", batch.input_file_id),
        ("output file", batch.output_file_id or ""),
        ("error file", batch.error_file_id or ""),
    ]
    begun = ("created", "in_progress", "paused", "finalizing")
    ended = ("completed", "failed", "expired", "cancelling", "cancelled")
    facts += [(f"{name.replace('_', ' ')} (UTC)", moment(getattr(batch, f"{name}_at"))) for name in (*begun, *ended)]
    facts.append(("ends by (UTC)", moment(batch.expires_at)))
    return facts + [(f"metadata {key}", value) for key, value in (batch.metadata or {}).items()]


def _table(*titles: str, id_width: int = 0) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(titles):
        right = title in {"done", "failed", "size", "line"}
        # Ids are there to be copied: on a narrow terminal all other columns give way.
        width = id_width if place == 0 and id_width else None
        table.add_column(title, justify="right" if right else "left", overflow="fold", min_width=width)
    return table


def _widest(ids: Iterable[str]) -> int:
    return max((len(plain(identifier)) for identifier in ids), default=0)


def _cell(value: str | None) -> Text:
    return Text(plain(value or ""))
