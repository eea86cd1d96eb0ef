"""Token counts, in one shape for every endpoint and every engine.

Engines report usage in three dialects: ``prompt_tokens``/``completion_tokens`` (chat completions, completions,
embeddings), ``input_tokens``/``output_tokens`` (responses), and ``input_tokens`` without the cached share (messages).
Usage is bookkeeping, never a reason to lose a result: what cannot be read counts as 0.
"""

from typing import Annotated, Final, Self

import msgspec

_MOST_TOKENS: Final = 2**40
"""A count above this is an engine's mistake; sums of a million such counts still fit PostgreSQL's bigint."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST_TOKENS)]


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one request or of many."""

    input_tokens: int = 0
    """All prompt tokens, cached ones included."""
    cached_tokens: int = 0
    """Prompt tokens answered from a prefix cache; part of ``input_tokens``."""
    output_tokens: int = 0
    """All generated tokens, reasoning included."""
    reasoning_tokens: int = 0
    """Part of ``output_tokens``."""

    def __add__(self, other: Self) -> "Usage":
        """Sum two counts field by field."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE: Final = Usage()


class UsageDetails(msgspec.Struct, gc=False):
    """The inner object of an engine's ``usage`` that splits one of its counts."""

    cached_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None


class UsageFields(msgspec.Struct, gc=False):
    """An engine's ``usage`` object as it came; a key that is absent or null is None."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: UsageDetails | None = None
    completion_tokens_details: UsageDetails | None = None
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    input_tokens_details: UsageDetails | None = None
    output_tokens_details: UsageDetails | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


def usage_of(fields: UsageFields | None) -> Usage:
    """Translate an engine's usage, whichever dialect it is in; None is no usage at all."""
    if fields is None:
        return NO_USAGE
    read = fields.cache_read_input_tokens or 0
    inputs = fields.prompt_tokens_details or fields.input_tokens_details
    outputs = fields.completion_tokens_details or fields.output_tokens_details
    return Usage(
        (fields.prompt_tokens or fields.input_tokens or 0) + read + (fields.cache_creation_input_tokens or 0),
        ((inputs.cached_tokens or 0) if inputs is not None else 0) or read,
        fields.completion_tokens or fields.output_tokens or 0,
        (outputs.reasoning_tokens or 0) if outputs is not None else 0,
    )


def usage_of_value(value: object) -> Usage:
    """Read what can be read of a decoded ``usage`` that is not shaped as it should be."""
    if not isinstance(value, dict):
        return NO_USAGE
    legible = {name: _legible(name, value.get(name)) for name in UsageFields.__struct_fields__}
    return usage_of(msgspec.convert(legible, UsageFields))


def _legible(name: str, value: object) -> object:
    if not name.endswith("_details"):
        return _count(value)
    if not isinstance(value, dict):
        return None
    return {inner: _count(value.get(inner)) for inner in UsageDetails.__struct_fields__}


def _count(value: object) -> int | None:
    """A whole number of tokens, or None; ``12.0`` counts, as some engines send floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _MOST_TOKENS else None
