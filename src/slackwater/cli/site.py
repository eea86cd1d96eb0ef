"""What every server role is given: settings become a database, an object store, metrics and logs, made in one place."""

import asyncio
import contextlib
import ctypes
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import structlog
import uuid_utils.compat
import uvloop
from prometheus_client import CollectorRegistry

from slackwater.blobs.protocol import BlobStore
from slackwater.blobs.seam import Seam
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.store import open_store
from slackwater.config import Settings, load
from slackwater.db.session import Database, PoolSettings, TransactionSeam
from slackwater.domain.errors import ObjectMissing
from slackwater.logs import configure
from slackwater.metrics import Metrics, create_metrics
from slackwater.probe import Check

_LOG: Final = structlog.get_logger("slackwater.site")
_PR_SET_PDEATHSIG: Final = 1
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

clock: Final = time.perf_counter
"""Monotonic seconds: the real clock, for everything that only measures."""

jitter: Final = random.random
"""The real chance, in [0, 1)."""


def now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


def new_uuid() -> uuid.UUID:
    """Return a fresh version 7 UUID: ids sort by creation."""
    return uuid_utils.compat.uuid7()


@dataclass(frozen=True, kw_only=True, slots=True)
class Seams:
    """What stands around every write of one process. Nothing does, unless a program of the tests composes the role."""

    database: TransactionSeam | None = None
    store: Seam | None = None


NO_SEAMS: Final = Seams()


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """The adapters of one process."""

    settings: Settings
    metrics: Metrics
    db: Database
    store: BlobStore

    def checks(self) -> tuple[Check, ...]:
        """What this process needs to do its work."""
        return Check(name="database", ask=self.db.ping), Check(name="store", ask=self._ask_store)

    async def _ask_store(self) -> None:
        """Ask for an object that is never there: any answer will do."""
        with contextlib.suppress(ObjectMissing):
            await self.store.size("inputs/readiness")


def begin(role: str, supervisor_pid: int | None) -> Settings:
    """Prepare a server process: it ends with its supervisor, logs as it should, and returns its settings."""
    die_with(supervisor_pid)
    _keep_freed_memory()
    settings = load()
    start_logs(settings, role)
    return settings


def _keep_freed_memory() -> None:
    """Have the allocator keep up to 16 MiB of freed memory instead of handing each buffer back to the kernel.

    Uploads, downloads and parts move in buffers of about 1 MiB; giving each back and faulting it in again costs more
    than everything else done with it (303 against 408 to 487 MB per CPU second for uploads), at the same RSS.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc only
        mallopt(_M_TRIM_THRESHOLD, 16 << 20)
        mallopt(_M_MMAP_THRESHOLD, 4 << 20)


def start_logs(settings: Settings, role: str) -> None:
    """Send the logs of this process to stderr, without any secret of the settings."""
    terminal = settings.log_format == "console" or (settings.log_format == "auto" and sys.stderr.isatty())
    configure(
        settings.log_level,
        stream=sys.stderr,
        terminal=terminal,
        secrets=[secret for secret in _secrets(settings) if secret],
        context={"role": role},
    )


def _secrets(settings: Settings) -> list[str]:
    """Collect the values that no log may show."""
    database_password = settings.database_url.get_secret_value().rpartition("@")[0].rpartition(":")[2]
    keys = (settings.store_secret_access_key, settings.engine_api_key)
    return [database_password, *(key.get_secret_value() for key in keys if key is not None)]


def store_settings(settings: Settings) -> StoreSettings:
    """Pick the object store's settings."""
    secret = settings.store_secret_access_key
    return StoreSettings(
        endpoint=settings.store_endpoint,
        region=settings.store_region,
        access_key_id=settings.store_access_key_id,
        secret_access_key=None if secret is None else secret.get_secret_value(),
        allow_http=(settings.store_endpoint or "").startswith("http://"),
        request_checksum_calculation=settings.store_checksums,
    )


@asynccontextmanager
async def open_site(settings: Settings, seams: Seams = NO_SEAMS) -> AsyncIterator[Site]:
    """Make the adapters of one process, and close them at the end."""
    metrics = create_metrics(CollectorRegistry(), version=version("slackwater"), clock=clock)
    db = Database.connect(
        settings.database_url.get_secret_value(),
        pool=PoolSettings(
            hot=settings.database_hot_connections,
            other=settings.database_other_connections,
            prepare=settings.database_prepared_statements,
        ),
        seam=seams.database,
    )
    store = open_store(
        settings.store_url, settings=store_settings(settings), seam=seams.store, observer=metrics.store()
    )
    try:
        yield Site(settings=settings, metrics=metrics, db=db, store=store)
    finally:
        await store.close()
        await db.close()


def run(main: Coroutine[None, None, None]) -> None:
    """Run one process's main coroutine on the fast event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, in place of ending the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def die_with(parent_pid: int | None) -> None:
    """Have the kernel end this process when its supervisor dies: a killed supervisor must leave nobody behind.

    None for a process that has no supervisor. Does nothing where the kernel has no such call.
    """
    if parent_pid is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the call
        raise SystemExit(1)
