"""Who calls: the only place where a request gets a tenant."""

from typing import Annotated, Final

from fastapi import Depends, Request

from slackwater.api.dependencies import Deps
from slackwater.db.credentials import Caller, authenticate
from slackwater.domain.errors import Unauthorized

_KEY_HEADERS: Final = ("x-api-key", "api-key")
_CODE: Final = "invalid_api_key"


def presented_secret(request: Request) -> str | None:
    """Return the key a request carries, None where it carries none.

    A header that somebody set by hand wins over the ``Authorization`` that an SDK always sends, if only with a dummy.
    """
    for name in _KEY_HEADERS:
        if value := request.headers.get(name, "").strip():
            return value
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() or None if scheme.lower() == "bearer" else None


async def caller(request: Request, deps: Deps) -> Caller:
    """Return who calls. Raises Unauthorized without a word about the key that came."""
    secret = presented_secret(request)
    if secret is None:
        raise Unauthorized("You did not provide an API key. Send it as 'Authorization: Bearer <key>'.", code=_CODE)
    found = await authenticate(deps.db, secret)
    if found is None:
        raise Unauthorized("Incorrect API key provided, or the key was revoked or has expired.", code=_CODE)
    request.state.tenant_id = found.tenant_id
    return found


Authenticated = Annotated[Caller, Depends(caller)]
