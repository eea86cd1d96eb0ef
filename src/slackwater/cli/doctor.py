"""``slackwater doctor``: looks at a site and at this machine, and says what is wrong and what to do.

It changes nothing but for one small object, which it writes to the store and removes again.
"""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.admin import AsJson, site_settings
from slackwater.cli.admin_show import show_rows
from slackwater.cli.doctor_findings import Finding, Verdict, fault, ok, warn
from slackwater.cli.folders import Folders, folders
from slackwater.config import Settings
from slackwater.domain.errors import SetupError


def doctor(
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="The data folder of a `slackwater up`; its own by default.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check settings, database, store, workers and this machine; exit code 1 where something is wrong."""
    findings = _examine(data_dir)
    show_rows(findings, as_json=as_json)
    raise typer.Exit(int(any(finding.verdict is Verdict.FAULT for finding in findings)))


def _examine(data_dir: Path | None) -> list[Finding]:
    """Read the settings, then examine everything they name."""
    try:
        settings = site_settings(data_dir)
    except SetupError as error:
        return [fault("settings", str(error), "docs/settings.md lists every setting")]
    # After site_settings: it names the file of a running `slackwater up` where nothing else is said.
    file = os.environ.get("SLACKWATER_CONFIG_FILE")
    return [_settings(settings, file), *asyncio.run(_site_and_machine(settings, folders(settings, data_dir)))]


def _settings(settings: Settings, file: str | None) -> Finding:
    """Say how many settings there are and where they come from."""
    found = f"{len(settings.model_fields_set)} set, from the environment" + (f" and {file}" if file else "")
    if "database_url" not in settings.model_fields_set:
        advice = "start `slackwater up`, or set SLACKWATER_DATABASE_URL"
        return warn("settings", f"{found}; none names a database", advice)
    return ok("settings", found)


async def _site_and_machine(settings: Settings, places: Folders) -> list[Finding]:
    """Examine the site, then this machine. Takes seconds; a part that does not answer costs up to a minute."""
    from slackwater.cli.doctor_machine import examine_engine, examine_scratch
    from slackwater.cli.doctor_site import examine_database, examine_store

    scratch = settings.scratch_dir or (places.scratch if places.site.is_file() else None)
    return [
        *await examine_database(settings.database_url.get_secret_value(), now=lambda: datetime.now(UTC)),
        await examine_store(settings),
        *await examine_engine(settings, places, os.environ),
        examine_scratch(scratch, max_file_bytes=settings.max_file_bytes),
    ]
