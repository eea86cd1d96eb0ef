"""What makes a request the repetition of an earlier one: the caller's key, or the SDK's own count of retries."""

import re
from dataclasses import dataclass
from typing import Final

from fastapi import Request

from slackwater.db.credentials import Caller
from slackwater.db.idempotency import Attempt, Once
from slackwater.domain.errors import BadRequest

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_RETRIES: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat:
    """What a request says about being a repetition."""

    key: str | None
    """The caller's own key; None where only the SDK speaks."""
    attempt: Attempt


def repeat_of(request: Request) -> Repeat | None:
    """Read by what this create is recognised when it comes again; None where nothing could tell it from a new one.

    ``Idempotency-Key`` counts for a day, whatever else is sent. Without it the SDKs' ``x-stainless-retry-count`` does:
    of a retry it says that the same key sent the same body less than a minute ago. Raises BadRequest.
    """
    key = request.headers.get("idempotency-key")
    if key is not None:
        if _KEY.fullmatch(key) is None:
            raise BadRequest("Idempotency-Key must be 1 to 255 visible ASCII characters.", param="Idempotency-Key")
        return Repeat(key=key, attempt="explicit")
    retries = request.headers.get("x-stainless-retry-count", "")
    if _RETRIES.fullmatch(retries) is None:
        return None
    return Repeat(key=None, attempt="silent_retry" if int(retries) else "silent_first")


def once_of(repeat: Repeat | None, caller: Caller, *, route: str, body_sha256: bytes) -> Once | None:
    """Return the same with what was asked for, in a form the database can compare."""
    if repeat is None:
        return None
    key = repeat.key if repeat.key is not None else f"{caller.key_id}:{body_sha256.hex()}"
    return Once(route=route, key=key, body_sha256=body_sha256, attempt=repeat.attempt)
