"""``slackwater audit``: the auditor's report for people and scripts."""

import asyncio
import dataclasses
import json
import sys

import typer
from rich.console import Console
from rich.text import Text

from slackwater.cli.people_exits import exits
from slackwater.cli.people_text import plain
from slackwater.cli.site import open_site
from slackwater.cli.site_settings import site_settings
from slackwater.flow.audit import Report, audit


def audit_batch(batch_id: str, *, as_json: bool) -> int:
    """Audit one batch and show the report; returns the exit code: 0 where every promise was kept, else 1."""

    async def run() -> Report:
        async with open_site(site_settings()) as site:
            return await audit(site.db, site.store, batch_id)

    with exits():
        report = asyncio.run(run())
        if as_json or not sys.stdout.isatty():
            typer.echo(json.dumps(dataclasses.asdict(report) | {"sound": report.sound}, ensure_ascii=False))
        else:
            _show(report)
        return 0 if report.sound else 1
    raise AssertionError("exits() lets no error pass")


def _show(report: Report) -> None:
    """Show a report on a terminal."""
    console = Console()
    console.print(
        f"{report.batch_id}  {report.status}: {report.lines:,} requests, {report.succeeded:,} succeeded, "
        f"{report.failed:,} failed"
    )
    for check in report.checks:
        console.print(Text("  ok     ", style="green"), Text(plain(check)), sep="")
    for what in report.unchecked:
        console.print(Text("  -      ", style="yellow"), Text(plain(what)), sep="")
    for fault in report.faults:
        console.print(Text("  FAULT  ", style="bold red"), Text(plain(fault)), sep="")
    console.print("sound" if report.sound else f"{len(report.faults)} faults", style="bold")
