"""Connects a command to the service, and the options that say where it is."""

import os
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from slackwater.cli import profile

if TYPE_CHECKING:
    from slackwater.client import Client

MAX_RETRIES: Final = 3
"""A person would rather wait three seconds than type the command again; more would hide that nothing listens."""

BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", help=f"The service's URL (else {profile.BASE_URL_VARIABLE}, else the profile)."),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help=f"Your key (else {profile.API_KEY_VARIABLE}, else the profile)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON also on a terminal: one object a line.")]


@contextmanager
def connect(base_url: str | None, api_key: str | None) -> "Iterator[Client]":
    """Give a client of the service that options, environment or profile name. Raises SetupError, BadRequest."""
    from slackwater.client import Client  # the HTTP library, only where it is used

    path = profile.data_dir(os.environ, Path.home()) / profile.FILE_NAME
    target = profile.find_target(
        base_url=base_url,
        api_key=api_key,
        environment=os.environ,
        profile=lambda: profile.read_profile(path),
    )
    with Client(
        base_url=target.base_url,
        api_key=target.api_key,
        new_key=lambda: uuid.uuid4().hex,
        jitter=random.random,
        max_retries=MAX_RETRIES,
    ) as client:
        yield client
