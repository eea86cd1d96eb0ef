"""What writers that died left half made: invisible in every listing of objects, and kept by the store for ever."""

import asyncio
import sys
from datetime import datetime
from pathlib import Path
from typing import Final

from slackwater.blobs.abort_uploads import Errand
from slackwater.blobs.failures import writing
from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.staging import remove_abandoned
from slackwater.blobs.store import parse_url
from slackwater.domain.errors import StoreUnavailable

_MOST_UPLOADS: Final = 1000
_LONGEST_SECONDS: Final = 600.0


async def remove_leftovers(url: str, *, settings: StoreSettings, untouched_since: datetime) -> int:
    """Remove half-made uploads that nobody touched since then, a thousand at most, or local files of dead processes.

    Safe beside live writers and other sweepers; returns how many went. Raises StoreUnavailable.
    """
    kind, place, prefix = parse_url(url)
    if kind == "file":
        with writing(place):
            return await asyncio.to_thread(remove_abandoned, Path(place))
    errand = Errand(
        bucket=place, prefix=prefix, settings=settings, untouched_since=untouched_since, limit=_MOST_UPLOADS
    )
    return await _run(errand)


async def _run(errand: Errand) -> int:
    """Have a program of its own do it."""
    program = (sys.executable, "-m", "slackwater.blobs.abort_uploads")
    child = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            answer, _ = await child.communicate(errand.written())
    except TimeoutError as error:
        raise StoreUnavailable("Half-made uploads could not be removed in time.") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise StoreUnavailable("Half-made uploads could not be removed: the object store refused or did not answer.")
    return int(answer)
