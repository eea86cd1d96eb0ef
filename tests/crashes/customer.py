"""A customer who asks until the answer comes, each time under the same key, whatever becomes of the api meanwhile."""

import asyncio
import secrets
from typing import Any, Final

import httpx2

from slackwater.db.catalog import add_model
from slackwater.db.credentials import create_key
from slackwater.domain.ids import key_id
from tests.crashes.world import PATIENCE_SECONDS, Begun, World
from tests.service import jsonl, line, new_uuid

_LINES: Final = 24
UNSERVED: Final = "nobody-serves-it"


class Patient:
    """Repeats each request until it is answered."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def ask(self, method: str, path: str, *, key: str | None = None, **more: Any) -> dict[str, Any]:
        """Send one request, again and again while nobody answers; return the answer."""
        headers = {} if key is None else {"Idempotency-Key": key}
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    reply = await self._http.request(method, path, headers=headers, **more)
                except httpx2.TransportError:
                    await asyncio.sleep(0.1)
                    continue
                # A repetition may find that the first request did it.
                assert reply.status_code in {200, 404, 409}, reply.text
                return dict(reply.json())


async def visit(world: World) -> None:
    """Do everything a customer can do: upload, twice; a batch, paused and resumed; one cancelled; a file deleted."""
    await add_model(world.db, model_id=UNSERVED, actor="test", max_model_len=None)
    secret = await _secret(world)
    base = f"http://127.0.0.1:{world.api_port}/v1"
    async with httpx2.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {secret}"}, timeout=30) as http:
        customer = Patient(http)
        lines = [line(f"line-{n:02d}") for n in range(_LINES)]
        file = await _upload(customer, lines, "upload")
        again = await _upload(customer, lines, "upload")
        assert again["id"] == file["id"]
        batch = await _start(customer, file["id"], "first")
        world.begun.append(Begun(batch=batch["id"], ids={one["custom_id"] for one in lines}))
        # Nobody runs these, so that there is something to cancel however long the api is away.
        waiting = await _upload(customer, [line("waits", model=UNSERVED)], "waiting")
        other = await _start(customer, waiting["id"], "second")
        world.begun.append(Begun(batch=other["id"], ids=None, ending="cancelled"))
        await customer.ask("POST", f"/batches/{batch['id']}/pause")
        await customer.ask("POST", f"/batches/{other['id']}/cancel")
        await customer.ask("POST", f"/batches/{batch['id']}/resume")
        await customer.ask("DELETE", f"/files/{file['id']}")
    (counted,) = await world.rows("SELECT (SELECT count(*) FROM batches) AS batches")
    assert counted.batches == 2, "a repeated request made another batch"


async def _upload(customer: Patient, lines: list[dict[str, Any]], key: str) -> dict[str, Any]:
    files = {"file": ("in.jsonl", jsonl(lines))}
    return await customer.ask("POST", "/files", key=key, files=files, data={"purpose": "batch"})


async def _start(customer: Patient, file: str, key: str) -> dict[str, Any]:
    body = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return await customer.ask("POST", "/batches", key=key, json=body)


async def _secret(world: World) -> str:
    key = await create_key(
        world.db,
        key_id=key_id(new_uuid()),
        tenant_id=world.service.tenant,
        random_bytes=secrets.token_bytes(32),
        actor="test",
    )
    return key.secret
