"""From a file of requests to a batch: find the endpoint, upload, create."""

import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import msgspec
import typer

from slackwater.cli.progress_display import upload_display
from slackwater.client.errors import ClientError, ServiceRefused
from slackwater.client.multipart_body import Source, source_of_path
from slackwater.client.replies import Batch
from slackwater.domain.errors import BadRequest

if TYPE_CHECKING:
    from slackwater.client import Client

STDIN: Final = "-"
_LONGEST_FIRST_LINE_BYTES: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"

InputFile = Annotated[str, typer.Argument(metavar="FILE", help="Requests, one JSON object a line; - is stdin.")]
Endpoint = Annotated[
    str | None, typer.Option("--endpoint", help="The requests' endpoint (else the url of the first request).")
]
Window = Annotated[str, typer.Option("--window", help="Time to do it in: 1h to 7d.")]
Metadata = Annotated[
    list[str] | None, typer.Option("--metadata", metavar="KEY=VALUE", help="A note on the batch; may be repeated.")
]
InvalidLines = Annotated[
    str | None,
    typer.Option(
        "--invalid-lines",
        help="What one bad line does: 'fail' refuses the file, 'error' gives that line its error "
        "(else as the service is set).",
    ),
]


class _Line(msgspec.Struct):
    url: str


class _Replayed:
    """Bytes that were read ahead, then the stream they came from."""

    def __init__(self, ahead: bytes, stream: BinaryIO) -> None:
        self._ahead = ahead
        self._stream = stream

    def read(self, length: int, /) -> bytes:
        """Read the next bytes."""
        if not self._ahead:
            return self._stream.read(length)
        piece, self._ahead = self._ahead[:length], self._ahead[length:]
        return piece


def submit(
    client: "Client",
    file: str,
    *,
    endpoint: str | None,
    window: str,
    metadata: dict[str, str],
    invalid_lines: str | None,
) -> Batch:
    """Upload ``file`` and start a batch of it. Raises OSError, BadRequest and the client's errors."""
    source, ahead = open_source(file)
    chosen = endpoint or endpoint_of(ahead, file)
    with upload_display(source.length_bytes) as sent:
        uploaded = client.create_file(source, purpose="batch", sent=sent)
    try:
        return client.create_batch(
            input_file_id=uploaded.id,
            endpoint=chosen,
            completion_window=window,
            metadata=metadata or None,
            invalid_lines=invalid_lines,
        )
    except ServiceRefused:
        # No batch will ever read the upload. The refusal is what the person must see, not a failed tidying.
        with suppress(ClientError):
            client.delete_file(uploaded.id)
        raise


def open_source(file: str) -> tuple[Source, bytes]:
    """Describe the input, and return its bytes up to the end of its first request. Raises OSError."""
    if file != STDIN:
        path = Path(file)
        with path.open("rb") as stream:
            if not stream.seekable():
                raise BadRequest(f"{file} can be read only once: give it on stdin, as -", param="file")
            return source_of_path(path), _first_request(stream)
    stdin = sys.stdin.buffer
    ahead = _first_request(stdin)
    return (
        Source(
            filename="stdin.jsonl",
            length_bytes=None,
            repeatable=False,
            open=lambda: nullcontext(_Replayed(ahead, stdin)),
        ),
        ahead,
    )


def endpoint_of(ahead: bytes, file: str) -> str:
    """Read the url of the first request. Raises BadRequest where it has none."""
    try:
        return msgspec.json.decode(ahead.removeprefix(_BOM).strip(), type=_Line).url
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        name = "stdin" if file == STDIN else os.fspath(file)
        raise BadRequest(
            f"the first line of {name} does not say its endpoint ({error}): give --endpoint /v1/chat/completions",
            param="endpoint",
        ) from error


def metadata_of(pairs: list[str] | None) -> dict[str, str]:
    """Read ``key=value`` options. Raises typer.BadParameter."""
    metadata: dict[str, str] = {}
    for pair in pairs or []:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--metadata")
        metadata[key] = value
    return metadata


def _first_request(stream: BinaryIO) -> bytes:
    """Read up to the end of the first line that is not blank."""
    ahead = b""
    while line := stream.readline(_LONGEST_FIRST_LINE_BYTES):
        ahead += line
        if line.removeprefix(_BOM).strip():
            break
    return ahead
