"""How the people's commands end: one exit code for each outcome, the same in every command."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

import typer

from slackwater.cli.people_text import plain
from slackwater.client.errors import ServiceFailed, ServiceUnreachable
from slackwater.client.replies import Batch
from slackwater.domain.errors import SlackwaterError

EPILOG: Final = (
    "Exit codes: 0 all requests succeeded; 1 another error; 2 wrong usage; 3 completed with failed requests; "
    "4 failed validation; 5 expired; 6 cancelled; 7 service unreachable; 130 interrupted (the batch goes on)."
)

_GATEWAY_FAILURES: Final = frozenset({502, 503, 504})


class ExitCode(IntEnum):
    """What a script can tell from a command's end."""

    OK = 0
    """Everything asked for was done; of a batch: it completed and every request succeeded."""
    ERROR = 1
    """Refused by the service, or another error; the message is on stderr."""
    USAGE = 2
    """The command line is wrong; nothing was sent."""
    FAILED_LINES = 3
    """The batch completed; some or all of its requests failed."""
    FAILED_VALIDATION = 4
    """The batch was refused as a whole; no request ran."""
    EXPIRED = 5
    """The window passed before all requests were done; what was done has results."""
    CANCELLED = 6
    """The batch was cancelled; what was done has results."""
    UNREACHABLE = 7
    """No answer from the service, retries included."""
    INTERRUPTED = 130
    """Ctrl-C; a batch that was submitted goes on."""


def code_of_batch(batch: Batch) -> ExitCode:
    """Return the code for a batch that has ended; OK for one that has not."""
    match batch.status:
        case "completed":
            return ExitCode.FAILED_LINES if batch.counts.failed else ExitCode.OK
        case "failed":
            return ExitCode.FAILED_VALIDATION
        case "expired":
            return ExitCode.EXPIRED
        case "cancelled":
            return ExitCode.CANCELLED
        case _:
            return ExitCode.OK


def code_of_error(error: SlackwaterError) -> ExitCode:
    """Return the code for an error that ends a command."""
    match error:
        case ServiceUnreachable():
            return ExitCode.UNREACHABLE
        case ServiceFailed(status=status) if status in _GATEWAY_FAILURES:
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.ERROR


def say(message: str) -> None:
    """Tell the person something, on stderr: stdout belongs to results."""
    typer.echo(plain(message), err=True)


@contextmanager
def exits() -> Iterator[None]:
    """Turn what a command raises into one line on stderr and its exit code."""
    try:
        yield
    except SlackwaterError as error:
        say(f"error: {error}")
        raise typer.Exit(code_of_error(error)) from error
    except KeyboardInterrupt as error:
        say("interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except BrokenPipeError:
        # The reader of our stdout has gone (`| head`): Typer ends this quietly.
        raise
    except OSError as error:
        say(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}")
        raise typer.Exit(ExitCode.ERROR) from error
