"""The service's earlier version, as far as the database sees it: its statements, and a worker that runs on them.

``fixtures/queue_0001.sql`` is its ``queue.sql``, word for word. Two versions may meet in one database while a site is
upgraded: what this one migrates to, that one has to work with.
"""

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slackwater.blobs import keys
from slackwater.blobs.protocol import BlobStore
from slackwater.db.session import Database
from slackwater.domain.ids import BatchId, LeaseToken, TenantId, batch_id, file_id, tenant_id
from tests.service import MODEL, new_uuid

_BLOCK: Final = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.DOTALL | re.MULTILINE)
_FILE: Final = Path(__file__).parent / "fixtures" / "queue_0001.sql"

EARLIER: Final[dict[str, str]] = {
    name: "\n".join(line for line in block.splitlines() if not line.startswith("--")).strip().removesuffix(";")
    for name, block in _BLOCK.findall(_FILE.read_text())
}
"""Its statements by name."""

_TENANT: Final = "INSERT INTO tenants (id, name, weight) VALUES (%(tenant)s, %(tenant)s, 1)"
_MODEL: Final = "INSERT INTO models (id, registered_by) VALUES (%(model)s, 'operator')"
_INPUT: Final = """
INSERT INTO files (id, tenant_id, purpose, filename, size_bytes, sha256, object_key)
VALUES (%(file)s, %(tenant)s, 'batch', 'in.jsonl', %(bytes)s, %(sha256)s, %(key)s)
"""
_BATCH: Final = """
INSERT INTO batches (id, tenant_id, dialect, endpoint, completion_window, invalid_lines, input_file_id, input_key,
                     input_bytes, deadline)
VALUES (%(batch)s, %(tenant)s, 'openai', '/v1/chat/completions', '24h', 'fail', %(file)s, %(key)s, %(bytes)s,
        now() + interval '24 hours')
"""
_CHUNK_COLUMNS: Final = (
    *("batch_id", "seq", "tenant_id", "model", "byte_start", "byte_length", "n_requests"),
    *("first_number", "cost_seconds"),
)


async def submit_as_before(db: Database, store: BlobStore, data: bytes) -> tuple[TenantId, BatchId]:
    """Make a tenant, a model, a file and a batch of it, in the columns that there were."""
    tenant, file, batch = tenant_id(new_uuid()), file_id(new_uuid()), batch_id(new_uuid())
    key = keys.input_key(file)
    written = await store.put(key, data, stage="earlier")
    facts = {"key": key, "bytes": written.size_bytes, "sha256": written.sha256, "model": MODEL}
    for statement in (_TENANT, _MODEL, _INPUT, _BATCH):
        await db.fetch("earlier", statement, facts | {"tenant": tenant, "file": file, "batch": batch})
    return tenant, batch


async def plan_as_before(db: Database, store: BlobStore, *, chunk_lines: int) -> str:
    """Plan the next batch into chunks of so many lines; returns its id."""
    (claim,) = await db.fetch("earlier", EARLIER["claim_planning"], {"claim_seconds": 60.0})
    lines = (await store.get(claim.input_key)).splitlines(keepends=True)
    groups = [lines[start : start + chunk_lines] for start in range(0, len(lines), chunk_lines)]
    params = {
        "batch_id": claim.id,
        "claim_token": claim.claim_token,
        "model": MODEL,
        "plan_key": None,
        "index_key": None,
        "total": len(lines),
        "refused": 0,
        "chunks_pending": len(groups),
        "chunks_total": len(groups),
        "chunks_done": 0,
    }
    rows, start, number = [], 0, 0
    for seq, group in enumerate(groups):
        size = sum(map(len, group))
        rows.append((claim.id, seq, claim.tenant_id, MODEL, start, size, len(group), number, 1.0))
        start, number = start + size, number + len(group)
    async with db.driver_transaction("earlier") as transaction:
        assert await transaction.fetch(EARLIER["publish_plan"], params)
        await transaction.copy("chunks", _CHUNK_COLUMNS, rows)
    return str(claim.id)


async def lease_as_before(db: Database, *, worker: "EarlierWorker", holder: str = "earlier") -> int:
    """Take the lead for a term and lease every chunk that can run to the worker; returns how many."""
    term = (await db.fetch("earlier", EARLIER["elect_leader"], {"holder": holder}))[0].term
    await db.fetch("earlier", EARLIER["reap_leases"], {"lease_seconds": 30.0, "limit": 1000})
    openings = await db.fetch("earlier", EARLIER["openings"], {"lease_seconds": 30.0, "express_lines": 20})
    assert worker.id in {opening.id for opening in openings}
    waiting = await db.fetch("earlier", EARLIER["runnable"], {"models": [MODEL], "head": 100})
    granted = [(batch.batch_id, seq) for batch in waiting for seq in batch.seqs]
    params = {
        "term": term,
        "batch_ids": [batch for batch, _ in granted],
        "seqs": [seq for _, seq in granted],
        "worker_ids": [worker.id] * len(granted),
        "incarnations": [worker.incarnation] * len(granted),
    }
    return len(await db.fetch("earlier", EARLIER["lease_chunks"], params))


@dataclass(frozen=True, kw_only=True)
class EarlierWorker:
    """A worker of the earlier version with an engine that answers at once."""

    db: Database
    store: BlobStore
    incarnation: uuid.UUID
    id: str = "earlier-worker"

    async def register(self) -> None:
        """Announce itself and its model, and beat for the first time."""
        params = {"worker_id": self.id, "incarnation": self.incarnation, "models": [MODEL], "slots": 8}
        await self.db.fetch("earlier", EARLIER["register_worker"], params)
        await self.db.fetch("earlier", EARLIER["announce_model"], {"model_id": MODEL, "max_model_len": 32768})
        await self.leases()

    async def leases(self) -> list[Any]:
        """Beat and hear what is leased."""
        params = {
            "worker_id": self.id,
            "incarnation": self.incarnation,
            "target_lines": 1000,
            "in_flight": 0,
            "engine_ready": True,
            "lines_per_second": None,
        }
        rows = await self.db.fetch("earlier", EARLIER["sync"], params)
        assert rows
        return [row for row in rows if row.batch_id is not None]

    async def commit(self, lease: Any) -> bool:
        """Answer every line of a leased chunk and commit it."""
        part = b"".join([_answer(line, lease) for line in await self._lines(lease)])
        key = keys.part_output_key(lease.batch_id, lease.seq, LeaseToken(lease.token))
        await self.store.put(key, part, stage="earlier")
        lines = part.count(b"\n")
        params = {
            "batch_id": lease.batch_id,
            "seq": lease.seq,
            "token": lease.token,
            "succeeded": lines,
            **dict.fromkeys(("errored", "cancelled", "expired", "cached_tokens", "reasoning_tokens"), 0),
            "input_tokens": 2 * lines,
            "output_tokens": lines,
            "out_key": key,
            "out_bytes": len(part),
            "out_sha256": hashlib.sha256(part).hexdigest(),
            "err_key": None,
            "err_bytes": 0,
            "err_sha256": None,
        }
        return bool(await self.db.fetch("earlier", EARLIER["commit_chunk"], params))

    async def release(self, lease: Any) -> bool:
        """Give a chunk back."""
        params = {"batch_id": lease.batch_id, "seq": lease.seq, "token": lease.token}
        return bool(await self.db.fetch("earlier", EARLIER["release_chunk"], params))

    async def _lines(self, lease: Any) -> list[bytes]:
        data = await self.store.get_range(lease.source_key, lease.byte_start, lease.byte_length)
        return data.splitlines()


def earlier_worker(db: Database, store: BlobStore) -> EarlierWorker:
    """Make a worker of the earlier version."""
    return EarlierWorker(db=db, store=store, incarnation=new_uuid())


def _answer(line: bytes, lease: Any) -> bytes:
    custom_id = json.loads(line)["custom_id"]
    body = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    response = {"status_code": 200, "request_id": f"req_{custom_id}", "body": body}
    result = {"id": f"{lease.batch_id}_{custom_id}", "custom_id": custom_id, "response": response, "error": None}
    return json.dumps(result).encode() + b"\n"
