"""What an operator may set about the HTTP API; plain values, filled in from the settings by the command line."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiSettings:
    """Limits and policies of the HTTP API. The defaults let a file of a million lines through."""

    max_upload_bytes: int = 8 << 30
    """Largest file of one direct upload."""
    max_json_body_bytes: int = 1 << 20
    """Largest body of every other request."""
    batch_file_lifetime: timedelta | None = timedelta(days=30)
    """How long an uploaded batch input is kept if its upload does not say; None: until it is deleted."""
    require_jsonl_suffix: bool = False
    """Whether a batch input must be called ``….jsonl``, as OpenAI demands. SDKs call plain bytes ``upload``."""
    shortest_window: timedelta = timedelta(hours=1)
    longest_window: timedelta = timedelta(days=7)
    readiness_seconds: float = 2.0
    """How long ``/readyz`` waits for the database and for the store."""
