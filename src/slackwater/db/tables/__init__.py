"""The schema as SQLAlchemy tables: narrow rows, named constraints, no JSON on hot paths.

``migrations/`` is what makes a database; a test compares the two. Times are ``timestamptz`` set by the database's
clock, sizes are bytes, costs engine-seconds, usage tokens.
"""

from slackwater.db.tables.accounts import api_keys, audit_log, idempotency_keys, tenants
from slackwater.db.tables.batches import batches, files
from slackwater.db.tables.catalog import model_aliases, models
from slackwater.db.tables.columns import metadata
from slackwater.db.tables.ledger import usage_ledger
from slackwater.db.tables.queue import chunk_segments, chunks, leader, tenant_service, workers

__all__ = [
    "api_keys",
    "audit_log",
    "batches",
    "chunk_segments",
    "chunks",
    "files",
    "idempotency_keys",
    "leader",
    "metadata",
    "model_aliases",
    "models",
    "tenant_service",
    "tenants",
    "usage_ledger",
    "workers",
]
