"""Requests of the files API. Pure: each function builds one operation."""

from collections.abc import Callable

from slackwater.client.calls import Call, Operation, Pairs, segment
from slackwater.client.multipart_body import MultipartBody, Source
from slackwater.client.replies import Deleted, File, Page


def create_file(
    source: Source,
    *,
    purpose: str,
    key: str,
    expires_after_seconds: int | None = None,
    sent: Callable[[int], object] | None = None,
) -> Operation[File]:
    """Upload a file. ``key`` is the idempotency key, and makes the boundary: unique, letters and digits."""
    fields: Pairs = (("purpose", purpose),)
    if expires_after_seconds is not None:
        fields = (
            *fields,
            ("expires_after[anchor]", "created_at"),
            ("expires_after[seconds]", str(expires_after_seconds)),
        )
    body = MultipartBody(fields=fields, source=source, boundary=f"slackwater-{key}", sent=sent)
    headers = (("Content-Type", body.content_type), ("Idempotency-Key", key))
    return Operation(call=Call(method="POST", path="/files", headers=headers, body=body), into=File)


def list_files(
    *, purpose: str | None = None, order: str = "desc", after: str | None = None, limit: int = 1000
) -> Operation[Page[File]]:
    """List one page of files, by creation; ``limit`` is 1 to 10,000."""
    query: Pairs = (("limit", str(limit)), ("order", order))
    if purpose is not None:
        query = (*query, ("purpose", purpose))
    if after is not None:
        query = (*query, ("after", after))
    return Operation(call=Call(method="GET", path="/files", query=query), into=Page[File])


def get_file(file_id: str) -> Operation[File]:
    """Look at one file."""
    return Operation(call=Call(method="GET", path=f"/files/{segment(file_id)}"), into=File)


def delete_file(file_id: str) -> Operation[Deleted]:
    """Delete one file."""
    return Operation(call=Call(method="DELETE", path=f"/files/{segment(file_id)}"), into=Deleted)
