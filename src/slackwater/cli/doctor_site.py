"""What the doctor asks of a site: its database, with all that it knows of leader, workers and models, and its store."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from slackwater.blobs.keys import input_key
from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.store import open_store, parse_url
from slackwater.cli.doctor_findings import (
    Finding,
    Verdict,
    fault,
    judge_clocks,
    judge_leadership,
    judge_models,
    judge_schema,
    judge_server,
    judge_workers,
    ok,
    warn,
)
from slackwater.cli.site import new_uuid, store_settings
from slackwater.config import Settings
from slackwater.db.catalog import list_models, list_workers
from slackwater.db.diagnosis import ask_server, find_leadership
from slackwater.db.migrate import known_revisions, schema_revision
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable, ObjectMissing, SetupError, StoreUnavailable
from slackwater.domain.ids import file_id

Now = Callable[[], datetime]

_SCHEMES: Final = ("postgresql://", "postgres://")
_STORE_SECONDS: Final = 60.0
_PROBE: Final = b"written by slackwater doctor\n"
_STORE_ADVICE: Final = (
    "check SLACKWATER_STORE_ENDPOINT, the keys and their rights; `slackwater migrate` makes the bucket"
)


async def examine_database(url: str, *, now: Now) -> list[Finding]:
    """Examine the database and what it knows of the site; the rest is only asked where the schema is right."""
    if not url.startswith(_SCHEMES):
        return [fault("database", "its URL is none of PostgreSQL's", "SLACKWATER_DATABASE_URL is `postgresql://…`")]
    db = Database.connect(url)
    try:
        return await _ask(db, url, now)
    except DatabaseUnavailable as error:
        advice = "start it, or correct SLACKWATER_DATABASE_URL: host, port, name, user and password"
        return [fault("database", f"{_place(url)}: {_cause(error)}", advice)]
    finally:
        await db.close()


async def _ask(db: Database, url: str, now: Now) -> list[Finding]:
    await db.ping()  # the first connection takes its time, and is not to be taken for a slow clock
    before = now()
    server = await ask_server(db)
    clocks = judge_clocks(server.now, before=before, after=now())
    schema = judge_schema(await asyncio.to_thread(schema_revision, url), known_revisions())
    findings = [judge_server(server), clocks, schema]
    if schema.verdict is not Verdict.OK:
        return findings
    return [
        *findings,
        judge_leadership(await find_leadership(db)),
        judge_workers(await list_workers(db)),
        judge_models(await list_models(db)),
    ]


async def examine_store(settings: Settings) -> Finding:
    """Write, read and remove one small object, under a name that a sweep would know for an orphan."""
    try:
        missing = _missing_folder(settings.store_url)
        if missing is not None:
            # Opening it would make it, as whoever runs the doctor.
            return warn("store", f"no folder {missing} yet", "the service makes it, if it may: see that its user can")
        store = open_store(settings.store_url, settings=store_settings(settings))
    except (SetupError, StoreUnavailable) as error:
        return fault("store", str(error), "correct SLACKWATER_STORE_URL")
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            whole = await _write_and_read(store)
    except (StoreUnavailable, ObjectMissing) as error:
        return fault("store", str(error), _STORE_ADVICE)
    except TimeoutError:
        return fault("store", f"no answer within {_STORE_SECONDS:.0f} s", _STORE_ADVICE)
    finally:
        await store.close()
    if not whole:
        return fault("store", "it gave back other bytes than were written", "look at what stands before the store")
    return ok("store", f"{settings.store_url} can be written, read and cleared")


def _missing_folder(url: str) -> str | None:
    """Return the folder of a local store that is not there."""
    kind, place, _ = parse_url(url)
    return place if kind == "file" and not Path(place).is_dir() else None


async def _write_and_read(store: BlobStore) -> bool:
    """Tell whether an object comes back as it was written; it is removed again."""
    key = input_key(file_id(new_uuid()))
    await store.put(key, _PROBE, stage="doctor.put")
    try:
        return await store.get(key) == _PROBE
    finally:
        await store.delete([key], stage="doctor.delete")


def _place(url: str) -> str:
    """Name the server and the database of a URL, without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'local socket'}{parts.path}"


def _cause(error: BaseException) -> str:
    """Return the driver's own words, for the operator's eyes: they never hold a password."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0]
