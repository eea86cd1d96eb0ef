"""``slackwater backup`` and ``slackwater restore``: a bar on a terminal, JSON lines in a pipe."""

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from slackwater.cli.people_exits import exits
from slackwater.cli.people_text import size

_EVERY_SECONDS: Final = 10.0

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Data folder of the `slackwater up` whose site it is.")
]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder, or one that will be made.")],
    data_dir: DataDir = None,
) -> None:
    """Back up database and store, while the service runs; a run that broke off is taken up again."""
    from slackwater.cli.site import Site
    from slackwater.flow.backup import Backup
    from slackwater.flow.backup_copy import CopyObserver
    from slackwater.flow.backup_folder import Manifest

    async def make(site: Site, observer: CopyObserver) -> Manifest:
        url = site.settings.database_url.get_secret_value()
        job = Backup(database_url=url, db=site.db, store=site.store, version=version("slackwater"), observer=observer)
        return await job.make(folder)

    _run(make, data_dir, "backed up")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a backup.")],
    data_dir: DataDir = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Drop what the database holds.")] = False,
) -> None:
    """Restore a backup into an empty database and a store, while no process of the service runs."""
    from slackwater.blobs.bucket import prepare_bucket
    from slackwater.cli.site import Site, store_settings
    from slackwater.flow.backup_copy import CopyObserver
    from slackwater.flow.backup_folder import Manifest
    from slackwater.flow.restore import Restore

    async def load(site: Site, observer: CopyObserver) -> Manifest:
        await prepare_bucket(site.settings.store_url, settings=store_settings(site.settings))
        url = site.settings.database_url.get_secret_value()
        return await Restore(database_url=url, store=site.store, observer=observer, replace=force).run(folder)

    _run(load, data_dir, "restored")


def _run(act: "Callable[[Any, Any], Awaitable[Any]]", data_dir: Path | None, done: str) -> None:
    """Run one act on the site's adapters, show how far it is, and say what was done."""
    from slackwater.cli.data_folder import site_at_hand
    from slackwater.cli.site import open_site

    with exits(), site_at_hand(data_dir) as settings, _shown() as observer:
        logging.getLogger("alembic").setLevel(logging.WARNING)

        async def run() -> Any:
            async with open_site(settings) as site:
                return await act(site, observer)

        manifest = asyncio.run(run())
        rows, objects = sum(table.rows for table in manifest.tables), manifest.objects
        if sys.stdout.isatty():
            typer.echo(f"{done}: {rows:,} rows, {objects.count:,} objects of {size(objects.size_bytes)}")
            typer.echo(f"the database as of {manifest.taken_at}, schema {manifest.revision}")
        else:
            facts = {"rows": rows, "objects": objects.count, "size_bytes": objects.size_bytes}
            _tell({"done": done, **facts, "taken_at": manifest.taken_at, "revision": manifest.revision})


class _Lines:
    """A JSON line on stdout for each phase, and every ten seconds within one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told_at = clock()
        self._said: dict[str, object] = {}
        self._moved = {"count": 0, "size_bytes": 0}

    def begun(self, phase: str, *, count: int | None = None, size_bytes: int | None = None) -> None:
        """See CopyObserver."""
        self._said = {"phase": phase, "of_count": count, "of_size_bytes": size_bytes}
        self._moved = {"count": 0, "size_bytes": 0}
        self._tell()

    def moved(self, *, count: int, size_bytes: int) -> None:
        """See CopyObserver."""
        self._moved["count"] += count
        self._moved["size_bytes"] += size_bytes
        if self._clock() - self._told_at >= _EVERY_SECONDS:
            self._tell()

    def _tell(self) -> None:
        self._told_at = self._clock()
        _tell({name: value for name, value in (self._said | self._moved).items() if value is not None})


@contextmanager
def _shown() -> Iterator[Any]:
    """Give the observer that fits stdout."""
    if not sys.stdout.isatty():
        from slackwater.cli.site import clock

        yield _Lines(clock)
        return
    from slackwater.cli.progress_bar import copy_bar

    with copy_bar() as bar:
        yield bar


def _tell(facts: dict[str, object]) -> None:
    typer.echo(json.dumps(facts))
