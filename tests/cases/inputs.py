"""The collected input files, with the names in them replaced by those of the site under test.

Only bytes are replaced, nothing is parsed and written again: several of the files are broken on purpose.
"""

from pathlib import Path
from typing import Final

from tests.service import jsonl, line

INPUTS: Final = Path(__file__).parent / "inputs"
CHAT: Final = "/v1/chat/completions"
EMBEDDINGS: Final = "/v1/embeddings"
MODEL: Final = "simulated"
OTHER_MODEL: Final = "simulated-b"
SMALL_MODEL: Final = "simulated-2k"
"""Its context is 2,048 tokens."""


def read(name: str, *, model: str = MODEL, other_model: str = OTHER_MODEL) -> bytes:
    """Read one collected file; ``test-model`` and ``test-model-b`` become models that are served."""
    return _named((INPUTS / name).read_bytes(), model, other_model)


def _named(data: bytes, model: str, other_model: str) -> bytes:
    return data.replace(b"test-model-b", other_model.encode()).replace(b"test-model", model.encode())


def questions(count: int) -> bytes:
    """Write a batch input of so many requests, ``r0`` and on, each with a text of its own."""
    return jsonl(line(f"r{n}", f"question {n}") for n in range(count))


def lines(data: bytes) -> list[bytes]:
    """Cut a file at its line feeds, as the service should."""
    return [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]


def form(file: bytes, *, filename: bytes = b"in.jsonl", boundary: bytes = b"testboundary") -> bytes:
    """Wrap a batch input in a multipart body; quotes and line breaks in the name are escaped as browsers do."""
    name = filename.replace(b'"', b"%22").replace(b"\r", b"%0D").replace(b"\n", b"%0A")
    return b"".join(
        (
            b'--%b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n' % boundary,
            b'--%b\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n' % (boundary, name),
            b"Content-Type: application/octet-stream\r\n\r\n",
            file,
            b"\r\n--%b--\r\n" % boundary,
        )
    )


FORM_HEADERS: Final = {"Content-Type": "multipart/form-data; boundary=testboundary"}
