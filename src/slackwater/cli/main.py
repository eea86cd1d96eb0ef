"""The one command, ``slackwater``: server roles, the supervisor, administration, and the people's commands.

This is the composition root: the real clock, chance and environment are wired in here and nowhere below.
"""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli import admin, engine_install, people_batch, people_file
from slackwater.cli.backup import backup, restore
from slackwater.cli.doctor import doctor
from slackwater.cli.people_exits import EPILOG, exits
from slackwater.cli.run import run

# A verb that cannot reach the database says so in one line of its own; servers configure their logs themselves.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

app = typer.Typer(
    name="slackwater",
    help="Batch inference for LLMs: upload requests, get exactly one result for each.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
)
app.add_typer(people_batch.app)
app.add_typer(people_file.app)
app.command("run", epilog=EPILOG)(run)
app.command("doctor")(doctor)
app.command("backup")(backup)
app.command("restore")(restore)
for verbs in (admin.tenant, admin.key, admin.model, admin.worker):
    app.add_typer(verbs)

engine = typer.Typer(name="engine", help="The inference engine's own environment.", no_args_is_help=True)
app.add_typer(engine)
engine.command("install")(engine_install.install)

Supervisor = Annotated[int | None, typer.Option("--supervisor", hidden=True, help="Process id to end with.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder for everything; ~/.local/share/slackwater by default.")
]


@app.command()
def api(supervisor: Supervisor = None) -> None:
    """Serve the HTTP API."""
    from slackwater.cli.serve_api import serve_api
    from slackwater.cli.site import begin, run

    with exits():
        run(serve_api(begin("api", supervisor)))


@app.command()
def control(supervisor: Supervisor = None) -> None:
    """Plan, schedule, finish and sweep."""
    from slackwater.cli.serve_control import serve_control
    from slackwater.cli.site import begin, run

    with exits():
        run(serve_control(begin("control", supervisor)))


@app.command()
def work(supervisor: Supervisor = None) -> None:
    """Run one engine and feed it."""
    from slackwater.cli.serve_work import serve_work
    from slackwater.cli.site import begin, run

    with exits():
        run(serve_work(begin("work", supervisor)))


@app.command()
def migrate() -> None:
    """Bring the database to this version's schema, and make the bucket where the store is one."""
    import asyncio

    from slackwater.blobs.bucket import prepare_bucket
    from slackwater.cli.site import start_logs, store_settings
    from slackwater.config import load
    from slackwater.db.migrate import migrate as migrate_database

    with exits():
        settings = load()
        start_logs(settings, "migrate")
        migrate_database(settings.database_url.get_secret_value())
        asyncio.run(prepare_bucket(settings.store_url, settings=store_settings(settings)))
        typer.echo("the database and the store are ready", err=True)


@app.command()
def up(
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option(help="Address of the API; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; 8000, or a free one where that is taken.")] = None,
    engine_url: Annotated[
        str | None, typer.Option("--engine", help="Attach to this OpenAI-compatible server instead of starting vLLM.")
    ] = None,
    engine_api_key: Annotated[
        str | None, typer.Option(envvar="SLACKWATER_ENGINE_API_KEY", help="That server's API key, if it has one.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model for vLLM: a folder or a hub name; a small one by default.")
    ] = None,
    served_name: Annotated[str | None, typer.Option(help="The name customers use for it.")] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="NAME=MODEL: serve MODEL under NAME, too. May be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many workers to run.")] = 1,
    *,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Use the simulated engine: fast, and no model.")
    ] = False,
) -> None:
    """Run the whole service on this machine until Ctrl-C; nothing else has to be installed."""
    from slackwater.cli.up_options import start_up

    with exits():
        start_up(
            data_dir=data_dir,
            host=host,
            port=port,
            engine_url=engine_url,
            engine_api_key=engine_api_key,
            model=model,
            served_name=served_name,
            aliases=alias or [],
            workers=workers,
            simulated=simulated,
        )


@app.command()
def audit(
    batch_id: Annotated[str, typer.Argument(help="The batch to audit, `batch_…`.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> None:
    """Check a batch that has ended: exactly one result a request, counts, usage, ledger, stored objects."""
    from slackwater.cli.audit_show import audit_batch

    sys.exit(audit_batch(batch_id, as_json=as_json))
