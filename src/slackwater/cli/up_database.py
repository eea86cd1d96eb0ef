"""The database of ``slackwater up``: the settings' own, or an embedded server that is started again when it dies."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Final

import structlog

from slackwater.cli.folders import Folders
from slackwater.config import Settings
from slackwater.domain.errors import SetupError
from slackwater.embedded.postgres import EmbeddedPostgres

_LOG: Final = structlog.get_logger("slackwater.up")
_LOOK_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0


class UpDatabase:
    """A database in use. ``server`` is None where it is not ours to look after."""

    def __init__(self, url: str, server: EmbeddedPostgres | None) -> None:
        self.url = url
        self._server = server

    async def supervise(self) -> None:
        """Start the server again whenever it has ended, for ever; at once where it is not ours.

        The start blocks the event loop: the server ends with the thread that starts it, so that is the main one.
        """
        server = self._server
        pause = _LOOK_SECONDS
        while server is not None:
            await asyncio.sleep(pause)
            pause = _LOOK_SECONDS
            if server.running:
                continue
            _LOG.error("PostgreSQL ended and is started again")
            try:
                server.start()
            except SetupError as error:
                _LOG.error("PostgreSQL does not start", cause=str(error))
                pause = _LONGEST_PAUSE_SECONDS


@contextlib.contextmanager
def open_database(settings: Settings, folders: Folders) -> Iterator[UpDatabase]:
    """Yield the settings' own database, or an embedded server that lives as long as the block."""
    if "database_url" in settings.model_fields_set:
        yield UpDatabase(settings.database_url.get_secret_value(), None)
        return
    server = EmbeddedPostgres(folders.postgres, token=secrets.token_urlsafe(32))
    server.start()
    try:
        yield UpDatabase(server.socket_url, server)
    finally:
        server.stop()
