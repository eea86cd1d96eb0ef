"""What the sync and the async client share of httpx2: settings, arguments of one call, errors."""

import ipaddress
import ssl
from collections.abc import Mapping
from typing import Final, TypedDict
from urllib.parse import urlsplit

import httpx2

from slackwater.client.calls import Call, Reply
from slackwater.client.errors import ServiceUnreachable
from slackwater.client.multipart_body import MultipartBody

_CONNECT_SECONDS: Final = 5.0


class ClientArguments(TypedDict):
    """The arguments that ``httpx2.Client`` and ``httpx2.AsyncClient`` have in common here."""

    base_url: str
    headers: dict[str, str]
    timeout: httpx2.Timeout
    follow_redirects: bool
    trust_env: bool
    verify: ssl.SSLContext | bool


def client_arguments(base_url: str, api_key: str | None, *, timeout_seconds: float) -> ClientArguments:
    """Return the constructor arguments for a normal base URL; no key sends no Authorization header."""
    here = _is_loopback(urlsplit(base_url).hostname or "")
    headers = {"User-Agent": "slackwater-client", "Accept": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return ClientArguments(
        base_url=base_url,
        headers=headers,
        timeout=httpx2.Timeout(timeout_seconds, connect=_CONNECT_SECONDS),
        # A redirect would turn POST into GET, or carry the key elsewhere.
        follow_redirects=False,
        # A proxy named in the environment cannot reach what listens on this machine only.
        trust_env=not here,
        # Reading the machine's certificates takes tens of milliseconds: for nothing where there is no TLS. This context
        # trusts nobody, so it cannot be the weaker one.
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if here and base_url.startswith("http:") else True,
    )


def request_headers(call: Call) -> list[tuple[str, str]]:
    """Return the call's headers, the length of an upload included."""
    headers = list(call.headers)
    if isinstance(call.body, MultipartBody) and call.body.length_bytes is not None:
        headers.append(("Content-Length", str(call.body.length_bytes)))
    return headers


def whole_reply(response: httpx2.Response) -> Reply:
    """Take a response whose body has been read."""
    return Reply(status=response.status_code, headers=plain_headers(response), body=response.content)


def plain_headers(response: httpx2.Response) -> Mapping[str, str]:
    """Return the headers by lower-case name."""
    return dict(response.headers.items())


def unreachable(error: httpx2.RequestError, base_url: str) -> ServiceUnreachable:
    """Turn the library's error into ours."""
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            what = "no connection"
        case httpx2.TimeoutException():
            what = "no answer in time"
        case _:
            what = "the connection broke"
    detail = f": {error}" if str(error) else ""
    return ServiceUnreachable(f"{what} at {base_url}{detail}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
