"""Makes a bucket fit for use: it exists, and a rule removes what aborted uploads of dead processes left in it.

Run once when a site is set up (``slackwater migrate``, ``up``, ``doctor``), never on the way of a request: this is the
one place that needs boto3, and boto3 is 40 MB of memory that no other role should carry.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slackwater.blobs.settings import StoreSettings
from slackwater.blobs.store import parse_url
from slackwater.domain.errors import StoreUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import LifecycleRuleUnionTypeDef

RULE_ID: Final = "slackwater-abort-stale-uploads"
AWS_DEFAULT_REGION: Final = "us-east-1"
# What servers answer that know no lifecycle rules, or whose operator keeps them to himself.
NO_LIFECYCLE: Final = {"NotImplemented", "MethodNotAllowed", "AccessDenied", "InvalidRequest", "501", "405", "403"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketReport:
    """What was found and done."""

    created: bool
    """The bucket was not there before."""
    aborts_stale_uploads: bool
    """The rule is in force; False where the server does not allow it, and somebody has to look after them."""


async def prepare_bucket(url: str, *, settings: StoreSettings) -> BucketReport | None:
    """Make the bucket of an ``s3://`` URL if it is not there and add our lifecycle rule. Idempotent.

    Rules of others stay as they are. None for a local folder, which needs nothing. Raises StoreUnavailable when the
    server cannot be reached, refuses our key, or the bucket belongs to somebody else.
    """
    kind, bucket, prefix = parse_url(url)
    if kind != "s3":
        return None
    return await asyncio.to_thread(_prepare, bucket, prefix, settings)


def _prepare(bucket: str, prefix: str, settings: StoreSettings) -> BucketReport:
    client = connect(settings)
    try:
        created = _create(client, bucket, settings.region)
        rule = _add_rule(client, bucket, prefix, settings.stale_upload_days)
        return BucketReport(created=created, aborts_stale_uploads=rule)
    finally:
        client.close()


def _create(client: "S3Client", bucket: str, region: str) -> bool:
    try:
        asked(client.head_bucket, Bucket=bucket)
    except Refused as refused:
        if refused.code not in {"404", "NoSuchBucket"}:
            raise _unavailable(bucket, refused) from refused
    else:
        return False
    # AWS refuses its default region when it is named, and demands any other.
    where = {} if region == AWS_DEFAULT_REGION else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    try:
        asked(client.create_bucket, Bucket=bucket, **where)
    except Refused as refused:
        if refused.code != "BucketAlreadyOwnedByYou":  # another process of ours was faster
            raise _unavailable(bucket, refused) from refused
        return False
    return True


def _add_rule(client: "S3Client", bucket: str, prefix: str, days: int) -> bool:
    ours: LifecycleRuleUnionTypeDef = {
        "ID": RULE_ID,
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days},
    }
    try:
        others = [rule for rule in _rules(client, bucket) if rule.get("ID") != RULE_ID]
        asked(
            client.put_bucket_lifecycle_configuration,
            Bucket=bucket,
            LifecycleConfiguration={"Rules": [*others, ours]},
        )
    except Refused as refused:
        if refused.code in NO_LIFECYCLE:
            return False
        raise _unavailable(bucket, refused) from refused
    return True


def _rules(client: "S3Client", bucket: str) -> "list[LifecycleRuleUnionTypeDef]":
    # Writing the configuration replaces all of it: what is there has to be read first and sent along.
    found: list[LifecycleRuleUnionTypeDef]
    try:
        found = asked(client.get_bucket_lifecycle_configuration, Bucket=bucket)["Rules"]
    except Refused as refused:
        if refused.code == "NoSuchLifecycleConfiguration":
            return []
        raise
    return found


class Refused(Exception):
    """The server's answer is an error; ``code`` is S3's name for it or the HTTP status."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def asked(call: Callable[..., Any], **arguments: Any) -> Any:
    """Ask the server. Raises Refused for an error of its own, StoreUnavailable where it does not answer."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (see the module's docstring)

    try:
        return call(**arguments)
    except ClientError as error:
        raise Refused(str(error.response.get("Error", {}).get("Code", ""))) from error
    except BotoCoreError as error:
        reason = type(error).__name__
        raise StoreUnavailable(f"The object store did not answer ({reason}). Check its endpoint.") from error


def _unavailable(bucket: str, refused: Refused) -> StoreUnavailable:
    return StoreUnavailable(
        f"The object store refused to give us the bucket {bucket} ({refused.code}). Check the key and its permissions."
    )


def connect(settings: StoreSettings) -> "S3Client":
    """Make a plain client; importing it costs the memory this module speaks of."""
    import boto3  # noqa: PLC0415 (see the module's docstring)
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        config=Config(
            signature_version="s3v4",
            request_checksum_calculation=settings.request_checksum_calculation,
            response_checksum_validation=settings.request_checksum_calculation,
            connect_timeout=settings.connect_timeout_seconds,
            read_timeout=settings.request_timeout_seconds,
            retries={"max_attempts": settings.max_retries, "mode": "standard"},
            s3={"addressing_style": "virtual" if settings.virtual_hosted_style else "path"},
        ),
    )
