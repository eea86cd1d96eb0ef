"""A typed client of the HTTP API, from the customer's side.

One core, two thin transports: ``calls``, ``files``, ``batches`` build requests and ``replies`` types what comes back;
``retrying``, ``polling`` and ``downloading`` decide what to do next; ``sync_exchange`` and ``async_exchange`` do it.
Only the two transports and ``wire`` know httpx2, and they are loaded when :class:`Client` or :class:`AsyncClient` is
first asked for: a role of the service that shares the command with the client does not pay 20 MB for it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slackwater.client.async_client import AsyncClient
    from slackwater.client.sync_client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> object:
    match name:
        case "Client":
            from slackwater.client.sync_client import Client  # noqa: PLC0415 -- loaded on demand, see above

            return Client
        case "AsyncClient":
            from slackwater.client.async_client import AsyncClient  # noqa: PLC0415 -- loaded on demand, see above

            return AsyncClient
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
