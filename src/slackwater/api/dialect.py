"""The two families of clients, told apart by one header, and the shape in which each reads an error.

Both families may ask on the same origin, and share some paths (``/v1/files``, ``/v1/models``); both may send
``Authorization: Bearer``. Only ``anthropic-version`` is sent by one family and never by the other.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Dialect(StrEnum):
    """Whose API a request speaks; the value is what the database calls it."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class OpenAIError(msgspec.Struct, frozen=True, kw_only=True):
    """The inner object of an OpenAI error: four keys, always."""

    message: str
    type: str
    param: str | None
    code: str | None


class AnthropicError(msgspec.Struct, frozen=True, kw_only=True):
    """The inner object of an Anthropic error."""

    type: str
    message: str


class _OpenAIBody(msgspec.Struct, frozen=True, kw_only=True):
    error: OpenAIError


class _AnthropicBody(msgspec.Struct, frozen=True, kw_only=True):
    type: str = "error"
    error: AnthropicError
    request_id: str


def dialect_of(headers: Mapping[str, str]) -> Dialect:
    """Tell which family sent these headers; their names are looked up in lower case."""
    return Dialect.ANTHROPIC if "anthropic-version" in headers else Dialect.OPENAI


def openai_body(error: OpenAIError) -> bytes:
    """Encode an error as OpenAI clients read it."""
    return msgspec.json.encode(_OpenAIBody(error=error))


def anthropic_body(error: AnthropicError, request_id: str) -> bytes:
    """Encode an error as Anthropic clients read it."""
    return msgspec.json.encode(_AnthropicBody(error=error, request_id=request_id))
