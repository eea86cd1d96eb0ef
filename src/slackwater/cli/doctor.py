"""``slackwater doctor``: looks at a site and at this machine, and says what is wrong and what to do.

It changes nothing but for one small object, which it writes to the store and removes again.
"""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.admin import AsJson
from slackwater.cli.admin_show import show_rows
from slackwater.cli.doctor_findings import Finding, Verdict, fault, ok, warn
from slackwater.cli.folders import Folders, folders
from slackwater.cli.site_settings import site_beside, site_settings
from slackwater.config import CONFIG_FILE, Settings, load
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
        site = site_beside(load(), data_dir)
        settings = site_settings(data_dir)
    except SetupError as error:
        return [fault("settings", str(error), "docs/settings.md lists every setting")]
    places = folders(settings, data_dir)
    file = os.environ.get(CONFIG_FILE) if site is None else str(site)
    beside_up = site is not None
    return [_settings(settings, file), *asyncio.run(_site_and_machine(settings, places, beside_up=beside_up))]


def _settings(settings: Settings, file: str | None) -> Finding:
    """Say how many settings there are and where they come from."""
    found = f"{len(settings.model_fields_set)} set, from the environment" + (f" and {file}" if file else "")
    if "database_url" not in settings.model_fields_set:
        advice = "start `slackwater up`, or set SLACKWATER_DATABASE_URL"
        return warn("settings", f"{found}; none names a database", advice)
    return ok("settings", found)


async def _site_and_machine(settings: Settings, places: Folders, *, beside_up: bool) -> list[Finding]:
    """Examine the site, then this machine. Takes seconds; a part that does not answer costs up to a minute."""
    from slackwater.cli.doctor_machine import examine_engine, examine_scratch
    from slackwater.cli.doctor_site import examine_database, examine_store

    site = [
        *await examine_database(settings.database_url.get_secret_value(), now=lambda: datetime.now(UTC)),
        await examine_store(settings),
    ]
    if beside_up and "engine" not in settings.model_fields_set:
        engine = [ok("engine", "what `slackwater up` was told; the workers' line says whether it is ready")]
    else:
        engine = await examine_engine(settings, places, os.environ)
    scratch = settings.scratch_dir or (places.scratch if beside_up else None)
    return [*site, *engine, examine_scratch(scratch, max_file_bytes=settings.max_file_bytes)]
