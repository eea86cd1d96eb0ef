"""The few keys of a request body that the service itself sets; every other byte reaches the engine as it was sent.

The short list (architecture, invariant 6): ``model`` where the customer used an alias, and the operator's keys
``priority`` and ``cache_salt``, which a customer never sets: theirs are stripped, ours are added for engines that know
them.
"""

from typing import Final

import msgspec

OPERATOR_KEYS: Final = frozenset({"priority", "cache_salt"})

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


def operator_prefix(*, priority: int, cache_salt: str) -> bytes:
    """Render the operator's keys once per chunk, for :func:`rewrite_body`."""
    return _encode({"priority": priority, "cache_salt": cache_salt})[1:-1] + b","


def rewrite_body(body: bytes, *, model: bytes | None, prefix: bytes) -> bytes:
    """Return the body the engine gets.

    ``body`` is one JSON object without white space around it, and not empty. ``model`` is the served name as JSON
    text, None where the lines already carry it; ``prefix`` comes from :func:`operator_prefix`, empty for engines that
    do not know those keys. Without either, and unless the customer set an operator's key, the very bytes come back.
    """
    if model is None and b'"priority"' not in body and b'"cache_salt"' not in body:
        return b"{" + prefix + body[1:] if prefix else body
    fields = _decode(body)
    for key in OPERATOR_KEYS:
        fields.pop(key, None)
    if model is not None:
        fields["model"] = msgspec.Raw(model)
    return b"{" + prefix + _encode(fields)[1:]
