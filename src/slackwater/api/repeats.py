"""What makes a request the repetition of an earlier one: the caller's key, or the SDK's own count of retries."""

import re
from typing import Final

from fastapi import Request

from slackwater.db.credentials import Caller
from slackwater.db.idempotency import Once
from slackwater.domain.errors import BadRequest

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_RETRIES: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


def once_of(request: Request, caller: Caller, *, route: str, body_sha256: bytes) -> Once | None:
    """Return by what this create is recognised when it comes again; None where nothing could tell it from a new one.

    ``Idempotency-Key`` counts for a day, whatever else is sent. Without it the SDKs' ``x-stainless-retry-count`` does:
    of a retry it says that the same key sent the same body less than a minute ago. Raises BadRequest.
    """
    key = request.headers.get("idempotency-key")
    if key is not None:
        if _KEY.fullmatch(key) is None:
            raise BadRequest("Idempotency-Key must be 1 to 255 visible ASCII characters.", param="Idempotency-Key")
        return Once(route=route, key=key, body_sha256=body_sha256, attempt="explicit")
    retries = request.headers.get("x-stainless-retry-count", "")
    if _RETRIES.fullmatch(retries) is None:
        return None
    return Once(
        route=route,
        key=f"{caller.key_id}:{body_sha256.hex()}",
        body_sha256=body_sha256,
        attempt="silent_retry" if int(retries) else "silent_first",
    )
