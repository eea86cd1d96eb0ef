"""The HTTP API as a real server on a loopback port, with two tenants, for tests that speak HTTP to it."""

import asyncio
import itertools
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import uuid_utils.compat
import uvicorn
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from prometheus_client import CollectorRegistry

from slackwater.api.app import create_app
from slackwater.api.dependencies import ApiDependencies
from slackwater.api.settings import ApiSettings
from slackwater.blobs.protocol import BlobStore
from slackwater.db.accounts import create_tenant
from slackwater.db.credentials import create_key
from slackwater.db.session import Database
from slackwater.domain import ids
from slackwater.domain.ids import TenantId
from slackwater.metrics import create_metrics

LINE = b'{"custom_id":"a-1","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}\n'


def new_uuid() -> uuid.UUID:
    return uuid_utils.compat.uuid7()


def ticking() -> Callable[[], float]:
    """A clock that moves by a second a look."""
    return itertools.count(1.0).__next__


def dependencies(db: Database, blobs: BlobStore) -> ApiDependencies:
    metrics = create_metrics(CollectorRegistry(), version="0", clock=ticking())
    return ApiDependencies(db=db, blobs=blobs, metrics=metrics, new_uuid=new_uuid)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One tenant and a key of theirs."""

    id: TenantId
    key_id: ids.KeyId
    secret: str


@dataclass(frozen=True, kw_only=True)
class Api:
    """A running server and what it stands on."""

    origin: str
    deps: ApiDependencies
    acme: Tenant
    globex: Tenant
    _opened: list[AsyncOpenAI | httpx2.AsyncClient] = field(default_factory=list)
    _plain: dict[str, AsyncOpenAI] = field(default_factory=dict)

    def sdk(self, tenant: Tenant | None = None, *, path: str = "/v1", **options: Any) -> AsyncOpenAI:
        """Return the stock SDK, strict about what it gets, for a tenant (acme where none is named)."""
        key = (tenant or self.acme).secret
        plain = not options and path == "/v1"
        if plain and key in self._plain:
            return self._plain[key]
        arguments = {"api_key": key, "max_retries": 0, "_strict_response_validation": True, **options}
        # Loading certificates takes longer than most tests here.
        arguments.setdefault("http_client", DefaultAsyncHttpxClient(verify=False, trust_env=False))
        client = AsyncOpenAI(base_url=self.origin + path, **arguments)
        self._opened.append(client)
        if plain:
            self._plain[key] = client
        return client

    def http(self, tenant: Tenant | None = None, **options: Any) -> httpx2.AsyncClient:
        """Return a plain client; it sends acme's key unless another tenant, or headers, are given."""
        headers = {"Authorization": f"Bearer {(tenant or self.acme).secret}"}
        arguments = {"headers": headers, "trust_env": False, "verify": False, "timeout": 60, **options}
        client = httpx2.AsyncClient(base_url=self.origin, **arguments)
        self._opened.append(client)
        return client

    async def rows(self, statement: str, **params: object) -> list[Any]:
        """Run one statement of the test's own."""
        return await self.deps.db.fetch("test", statement, params)

    async def close(self) -> None:
        for client in self._opened:
            await (client.close() if isinstance(client, AsyncOpenAI) else client.aclose())


async def make_tenant(db: Database, name: str, *, weight: float = 1.0) -> Tenant:
    tenant_id, key_id = ids.tenant_id(new_uuid()), ids.key_id(new_uuid())
    await create_tenant(db, tenant_id=tenant_id, name=name, actor="test", weight=weight)
    random_bytes = name.encode().ljust(32, b".")
    key = await create_key(db, key_id=key_id, tenant_id=tenant_id, random_bytes=random_bytes, actor="test")
    return Tenant(id=tenant_id, key_id=key_id, secret=key.secret)


@asynccontextmanager
async def listening(deps: ApiDependencies) -> AsyncIterator[str]:
    """Serve the application in this event loop, on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    config = uvicorn.Config(create_app(deps), lifespan="off", log_config=None, loop="none", http="httptools", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


@asynccontextmanager
async def running_api(
    deps: ApiDependencies, *, settings: ApiSettings | None = None, names: tuple[str, str] = ("acme", "globex")
) -> AsyncIterator[Api]:
    """Make two tenants and serve the API to them."""
    if settings is not None:
        deps = replace(deps, settings=settings)
    acme, globex = [await make_tenant(deps.db, name) for name in names]
    async with listening(deps) as origin:
        api = Api(origin=origin, deps=deps, acme=acme, globex=globex)
        yield api
        await api.close()
