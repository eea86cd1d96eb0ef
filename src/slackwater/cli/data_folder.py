"""What ``slackwater up`` keeps on one machine, for itself and for commands that work on it while it does not run."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from slackwater.cli.folders import Folders, folders
from slackwater.cli.site_settings import site_beside, site_settings
from slackwater.cli.up_database import open_database
from slackwater.config import Settings, load
from slackwater.domain.errors import SetupError


@contextlib.contextmanager
def only_one(data: Path) -> Iterator[None]:
    """Hold the data folder: two services on one folder would be two leaders on one disk. Raises SetupError."""
    with (data / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"another `slackwater up` uses {data}; name another folder with --data-dir") from None
        yield


def store_url_of(settings: Settings, places: Folders) -> str:
    """Return the store's URL: the settings' own, or that of the folder's objects."""
    return settings.store_url if "store_url" in settings.model_fields_set else f"file://{places.objects}"


@contextlib.contextmanager
def site_at_hand(data: Path | None) -> Iterator[Settings]:
    """Yield the settings of the site: what is set, that of a running ``up``, or the data folder of one at rest.

    In the last case the folder is made where it is missing, and its PostgreSQL runs as long as the block.
    """
    settings = load()
    if "database_url" in settings.model_fields_set or site_beside(settings, data) is not None:
        yield site_settings(data)
        return
    places = folders(settings, data)
    places.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with only_one(places.data), open_database(settings, places) as database:
        said = {name: getattr(settings, name) for name in settings.model_fields_set}
        yield load(**said | {"database_url": database.url, "store_url": store_url_of(settings, places)})
