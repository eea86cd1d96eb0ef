"""Identifiers: text with a prefix that names the kind, then 32 hex digits of a UUID.

A version 7 UUID makes ids of one kind sort by creation. The UUID is an argument: this module has no chance in it.
"""

import re
import uuid
from typing import Final, NewType

TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
FileId = NewType("FileId", str)
BatchId = NewType("BatchId", str)
WorkerId = NewType("WorkerId", str)
ModelId = NewType("ModelId", str)
LeaseToken = NewType("LeaseToken", uuid.UUID)

_GRAMMAR: Final = re.compile(r"[a-z]+[_-][0-9a-f]{32}")


def tenant_id(value: uuid.UUID) -> TenantId:
    """Format a tenant's id, ``tenant_…``."""
    return TenantId(f"tenant_{value.hex}")


def key_id(value: uuid.UUID) -> KeyId:
    """Format an API key's id, ``key_…`` (the id, not the secret)."""
    return KeyId(f"key_{value.hex}")


def file_id(value: uuid.UUID) -> FileId:
    """Format a file's id, ``file-…`` with a hyphen, as the OpenAI API has it."""
    return FileId(f"file-{value.hex}")


def batch_id(value: uuid.UUID) -> BatchId:
    """Format a batch's id, ``batch_…``."""
    return BatchId(f"batch_{value.hex}")


def request_id(value: uuid.UUID) -> str:
    """Format the id of one HTTP exchange, ``req_…``."""
    return f"req_{value.hex}"


def is_id(text: str) -> bool:
    """Tell whether the text could be an id of ours at all, whatever its kind."""
    return _GRAMMAR.fullmatch(text) is not None
