"""Aborts multipart uploads that nobody goes on with: a program of its own, since boto3 is memory no role should carry.

``python -m slackwater.blobs.abort_uploads`` reads what to do as JSON from its standard input, so that no key of the
store is ever seen among the processes of a machine, and writes how many uploads it aborted.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from slackwater.blobs.bucket import Refused, asked, connect
from slackwater.blobs.keys import FOLDERS
from slackwater.blobs.settings import StoreSettings

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import MultipartUploadTypeDef


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What to do."""

    bucket: str
    prefix: str
    settings: StoreSettings
    untouched_since: datetime
    """Uploads that were begun, or had a part written, after this are left alone."""
    limit: int
    """How many are aborted at most."""

    def written(self) -> bytes:
        """Return the errand as the program reads it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.json.encode(fields | {"settings": asdict(self.settings)})


def abort_uploads(errand: Errand) -> int:
    """Abort them and return how many. Raises StoreUnavailable, Refused."""
    client = connect(errand.settings)
    aborted = 0
    try:
        for upload in _uploads(client, errand):
            if aborted == errand.limit:
                break
            if _is_old(client, errand, upload):
                place = {"Bucket": errand.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                asked(client.abort_multipart_upload, **place)
                aborted += 1
    finally:
        client.close()
    return aborted


def _uploads(client: "S3Client", errand: Errand) -> "Iterator[MultipartUploadTypeDef]":
    """List the unfinished uploads of this site: the bucket may hold others'."""
    for folder in FOLDERS:
        prefix = f"{errand.prefix}/{folder}/" if errand.prefix else f"{folder}/"
        marker: dict[str, str] = {}
        while True:
            page = asked(client.list_multipart_uploads, Bucket=errand.bucket, Prefix=prefix, **marker)
            yield from page.get("Uploads", ())
            if not page.get("IsTruncated"):
                break
            marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}


def _is_old(client: "S3Client", errand: Errand, upload: "MultipartUploadTypeDef") -> bool:
    """Tell whether nobody has touched an upload for long; one that is over meanwhile is nobody's business."""
    if upload["Initiated"] >= errand.untouched_since:
        return False
    place = {"Bucket": errand.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
    try:
        parts = asked(client.list_parts, **place).get("Parts", ())
    except Refused as refused:
        if refused.code == "NoSuchUpload":
            return False
        raise
    return all(part["LastModified"] < errand.untouched_since for part in parts)


def main() -> None:
    """Run one errand."""
    errand = msgspec.json.decode(sys.stdin.buffer.read(), type=Errand)
    sys.stdout.write(f"{abort_uploads(errand)}\n")


if __name__ == "__main__":
    main()
