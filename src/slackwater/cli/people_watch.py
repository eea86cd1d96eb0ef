"""Waits for a batch's end with its progress on stderr, and tells how to go on where that is interrupted."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from slackwater.cli.people_exits import ExitCode, say
from slackwater.cli.progress import Pace
from slackwater.cli.progress_display import Display, display
from slackwater.client.errors import ClientError
from slackwater.client.polling import Polling
from slackwater.client.replies import Batch

if TYPE_CHECKING:
    from slackwater.client import Client

DEFAULT_INTERVAL_SECONDS: Final = 2.0

Interval = Annotated[
    float, typer.Option("--interval", min=0.05, help="Seconds between two looks at the batch, at the most.")
]


def watch(client: "Client", batch_id: str, *, interval_seconds: float) -> Batch:
    """Return the batch once it has ended. Raises the client's errors where the service stays away."""
    with display() as shown:
        return follow(client, batch_id, Polling(interval_seconds=interval_seconds), shown, clock=time.monotonic)


def follow(client: "Client", batch_id: str, polling: Polling, shown: Display, *, clock: Callable[[], float]) -> Batch:
    """Show each look at the batch and return the last one."""
    pace = Pace()
    batch = None
    for batch in client.watch(
        batch_id, polling=polling, missed=lambda error: shown.note(f"{error}; the batch is not lost, trying again")
    ):
        now = clock()
        pace = pace.seen(batch, now)
        shown.show(pace.progress(batch), now)
    if batch is None:
        raise AssertionError("a watch gives at least one look")
    return batch


@contextmanager
def resumable(batch_id: str) -> Iterator[None]:
    """Say how to come back to the batch where the block is interrupted or fails: the batch goes on without us."""
    try:
        yield
    except KeyboardInterrupt as error:
        say(f"interrupted: {batch_id} goes on")
        _say_how_to_resume(batch_id)
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except (ClientError, OSError):
        _say_how_to_resume(batch_id)
        raise


def _say_how_to_resume(batch_id: str) -> None:
    say(f"  watch it:    slackwater batch watch {batch_id}")
    say(f"  its results: slackwater batch results {batch_id} > results.jsonl")
