"""What a store needs to know besides its URL."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSettings:
    """How to reach an S3 server; a local folder needs none of it. Keys are never shown by ``repr``."""

    endpoint: str | None = None
    """``http(s)://host:port`` of an S3-compatible server; None for AWS itself."""
    region: str = "us-east-1"
    access_key_id: str | None = field(default=None, repr=False)
    """None: the credentials of the machine's role, as AWS SDKs find them."""
    secret_access_key: str | None = field(default=None, repr=False)
    allow_http: bool = False
    """Whether an ``http://`` endpoint is allowed: without TLS everyone on the way can read along."""
    virtual_hosted_style: bool = False
    """Whether the bucket is part of the host name (then also of ``endpoint``) instead of the path."""
    request_checksum_calculation: Literal["when_required", "when_supported"] = "when_required"
    """botocore's setting: ``when_supported`` sends a SHA-256 checksum with every write, which AWS verifies and some
    other servers refuse."""
    max_retries: int = 4
    """Further tries after one that failed with a 5xx, a 429, a timeout or a broken connection."""
    retry_seconds: float = 20.0
    """No try begins later than this after the first."""
    request_timeout_seconds: float = 60.0
    """For one whole request, its body included."""
    connect_timeout_seconds: float = 5.0
    stale_upload_days: int = 2
    """Age at which the bucket's lifecycle rule removes multipart uploads that a dead process left behind."""
