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


def names_operator_keys(source: bytes) -> bool:
    """Tell whether some body in these bytes may set a key that is the operator's to set.

    Planning refuses bodies that spell such a key with escapes. One search of a chunk is cheaper than two of each line.
    """
    return b'"priority"' in source or b'"cache_salt"' in source


def rewrite_body(body: bytes, *, model: bytes | None, prefix: bytes, strip: bool) -> bytes:
    """Return the body the engine gets.

    ``body`` is one JSON object without white space around it, and not empty. ``model`` is the served name as JSON
    text, None where the lines already carry it; ``prefix`` comes from :func:`operator_prefix`, empty for engines that
    do not know those keys; ``strip`` says that the body may hold an operator's key (:func:`names_operator_keys`).
    Without any of these the very bytes come back.
    """
    if model is None and not strip:
        return b"{" + prefix + body[1:] if prefix else body
    fields = _decode(body)
    for key in OPERATOR_KEYS:
        fields.pop(key, None)
    if model is not None:
        fields["model"] = msgspec.Raw(model)
    return b"{" + prefix + _encode(fields)[1:]
