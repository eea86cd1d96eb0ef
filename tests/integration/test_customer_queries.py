"""What customers ask of the database often stays quick however much there is: index scans, few statements."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from slackwater.db import batches, credentials, files
from slackwater.db.hot import HotPool
from slackwater.db.idempotency import Once
from slackwater.db.pages import PageRequest
from slackwater.db.session import Database
from slackwater.domain.errors import DatabaseUnavailable
from slackwater.domain.ids import BatchId, FileId
from tests.api_under_test import Tenant, make_tenant

MANY = 3000
FIRST_FILE = FileId("file-" + "1".rjust(32, "0"))
NEW_FILE = files.NewFile(
    id=FileId("file-" + "f" * 32),
    purpose="batch",
    filename="x",
    size_bytes=1,
    sha256="",
    object_key="",
    expires_after=timedelta(days=1),
)
SECOND_NEW_FILE = FileId("file-" + "e" * 32)
NEW_BATCH = batches.NewBatch(
    id=BatchId("batch_" + "f" * 32),
    dialect="openai",
    endpoint="/v1/embeddings",
    completion_window="24h",
    window=timedelta(hours=24),
    input_file_id=NEW_FILE.id,
    invalid_lines="fail",
    metadata={"k": "v"},
    output_expires_seconds=None,
)
ONCE = Once(route="test", key="k", body_sha256=bytes(32), attempt="explicit")
FIRST_BATCH = BatchId("batch_" + "1".rjust(32, "0"))


@pytest.fixture
async def crowded(db: Database) -> Tenant:
    """One tenant among two, with thousands of files and batches."""
    tenants = [await make_tenant(db, name) for name in ("acme", "globex")]
    for offset, tenant in enumerate(tenants):
        await db.fetch(
            "test",
            "INSERT INTO files (id, tenant_id, purpose, filename, size_bytes, sha256, object_key)"
            " SELECT 'file-' || lpad(to_hex(n * 2 - 1 + %(offset)s), 32, '0'), %(tenant)s, 'batch', 'x', 1, '', ''"
            " FROM generate_series(1, %(many)s) n",
            {"offset": offset, "tenant": tenant.id, "many": MANY},
        )
        await db.fetch(
            "test",
            "INSERT INTO batches (id, tenant_id, endpoint, completion_window, input_file_id, input_key, input_bytes,"
            " deadline) SELECT replace(id, 'file-', 'batch_'), tenant_id, '/v1/embeddings', '24h', id, '', 1, now()"
            " FROM files WHERE tenant_id = %(tenant)s",
            {"tenant": tenant.id},
        )
    for table in ("files", "batches", "api_keys"):
        await db.fetch("test", f"ANALYZE {table}", {})
    return tenants[0]


class Recording(HotPool):
    """Passes statements on to another pool and notes them."""

    def __init__(self, hot: HotPool, sent: list[tuple[str, Any]]) -> None:
        self._recorded = hot
        self._sent = sent

    async def fetch(self, statement: str, params: Mapping[str, Any]) -> list[Any]:
        self._sent.append((statement, params))
        return await self._recorded.fetch(statement, params)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._recorded.transaction() as connection:
            yield RecordingConnection(connection, self._sent)


class RecordingConnection:
    """Passes statements of a transaction on to its connection and notes them."""

    def __init__(self, connection: Any, sent: list[tuple[str, Any]]) -> None:
        self._recorded = connection
        self._sent = sent

    async def execute(self, statement: str, params: Mapping[str, Any]) -> Any:
        self._sent.append((statement, params))
        return await self._recorded.execute(statement, params)


async def plans(db: Database, ask: Callable[[], Awaitable[object]]) -> list[Any]:
    """Return the plan of every statement that ``ask`` sends, on either way to the database."""
    sent: list[tuple[str, Any]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: Any, _context: object, _many: object) -> None:
        sent.append((statement, parameters))

    engine, hot = db._engine.sync_engine, db._hot
    event.listen(engine, "before_cursor_execute", note)
    db._hot = Recording(hot, sent)
    try:
        await ask()
    finally:
        db._hot = hot
        event.remove(engine, "before_cursor_execute", note)
    return [
        (await db.fetch("test", f"EXPLAIN (FORMAT JSON) {statement}", parameters))[0][0]
        for statement, parameters in sent
    ]


async def test_what_is_asked_often_never_reads_a_whole_table(db: Database, crowded: Tenant) -> None:
    tenant_id = crowded.id
    page = PageRequest(limit=20, after=None)
    later = PageRequest(limit=20, after=FIRST_BATCH, order="asc")
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: batches.get_batch(db, tenant_id=tenant_id, dialect="openai", batch_id=FIRST_BATCH),
        lambda: batches.list_batches(db, tenant_id=tenant_id, dialect="openai", page=page),
        lambda: batches.list_batches(db, tenant_id=tenant_id, dialect="openai", page=later),
        lambda: batches.cancel_batch(db, tenant_id=tenant_id, dialect="openai", batch_id=FIRST_BATCH),
        lambda: files.get_file(db, tenant_id=tenant_id, file_id=FIRST_FILE),
        lambda: files.list_files(db, tenant_id=tenant_id, page=page, purpose=None),
        lambda: files.create_file(db, tenant_id=tenant_id, new=NEW_FILE, once=None),
        lambda: files.create_file(db, tenant_id=tenant_id, new=replace(NEW_FILE, id=SECOND_NEW_FILE), once=ONCE),
        lambda: files.delete_file(db, tenant_id=tenant_id, file_id=FIRST_FILE),
        lambda: batches.create_batch(db, tenant_id=tenant_id, new=NEW_BATCH, once=replace(ONCE, route="batch")),
    ]

    for ask in asked:
        planned = await plans(db, ask)
        assert planned
        for plan in planned:
            shown = json.dumps(plan)
            assert "Index" in shown or '"Operation": "Insert"' in shown
            assert "Seq Scan" not in shown
            assert '"Sort"' not in shown


async def test_who_calls_is_one_statement(db: Database, crowded: Tenant) -> None:
    assert len(await plans(db, lambda: credentials.authenticate(db, crowded.secret))) == 1


async def test_a_file_that_a_batch_is_being_made_of_cannot_be_deleted_meanwhile(db: Database, crowded: Tenant) -> None:
    delete = "SELECT id FROM files WHERE id = :id FOR NO KEY UPDATE NOWAIT"

    async with db.driver_transaction("test") as transaction:
        held = await files.hold_input(transaction, tenant_id=crowded.id, file_id=FIRST_FILE)
        assert held.id == FIRST_FILE
        with pytest.raises(DatabaseUnavailable):
            async with db.transaction("test") as other:
                await other.execute(text(delete), {"id": FIRST_FILE})

    async with db.transaction("test") as other:
        assert (await other.execute(text(delete), {"id": FIRST_FILE})).one()
