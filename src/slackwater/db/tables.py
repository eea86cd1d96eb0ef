"""The schema as SQLAlchemy tables: narrow rows, named constraints, no JSON on hot paths.

``migrations/`` is what makes a database; a test compares the two. Times are ``timestamptz`` set by the database's
clock, sizes are bytes, costs engine-seconds, usage tokens.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata: Final = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

_NOW: Final = text("now()")


def _at(name: str, *, required: bool = False) -> Column[object]:
    """A timestamp column; a required one is set by the database when the row is made."""
    return Column(name, DateTime(timezone=True), nullable=not required, server_default=_NOW if required else None)


def _count(name: str, kind: type[BigInteger] | type[Integer] = Integer) -> Column[int]:
    """A counter that starts at zero."""
    return Column(name, kind, nullable=False, server_default=text("0"))


tenants: Final = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("weight", Float, nullable=False, server_default=text("1")),
    Column("max_lines", Integer),
    Column("max_input_bytes", BigInteger),
    _at("created_at", required=True),
    CheckConstraint("weight > 0", name="weight"),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("prefix", Text, nullable=False),
    Column("role", Text, nullable=False, server_default=text("'tenant'")),
    _at("created_at", required=True),
    _at("expires_at"),
    _at("revoked_at"),
    _at("last_used_at"),
    CheckConstraint("role IN ('tenant', 'operator')", name="role"),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False),
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body_sha256", LargeBinary, nullable=False),
    Column("resource_id", Text, nullable=False),
    _at("created_at", required=True),
    PrimaryKeyConstraint("tenant_id", "route", "key"),
)

audit_log: Final = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    _at("at", required=True),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
)

models: Final = Table(
    "models",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoints", ARRAY(Text)),
    Column("max_model_len", Integer),
    Column("registered_by", Text, nullable=False),
    Column("seconds_per_line", Float),
    Column("bytes_per_token", Float),
    _at("created_at", required=True),
    CheckConstraint("registered_by IN ('operator', 'worker')", name="registered_by"),
)

model_aliases: Final = Table(
    "model_aliases",
    metadata,
    Column("alias", Text, primary_key=True),
    Column("model_id", Text, ForeignKey("models.id", ondelete="CASCADE"), nullable=False),
    _at("created_at", required=True),
)

files: Final = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False),
    Column("purpose", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("object_key", Text, nullable=False),
    _at("created_at", required=True),
    _at("expires_at"),
    _at("deleted_at"),
    _at("purged_at"),
    Index("files_tenant_id_id_idx", "tenant_id", "id", postgresql_where=text("deleted_at IS NULL")),
    Index("files_object_key_idx", "object_key"),
    Index("files_expires_at_idx", "expires_at", postgresql_where=text("purged_at IS NULL")),
)

batches: Final = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False),
    Column("dialect", Text, nullable=False, server_default=text("'openai'")),
    Column("endpoint", Text, nullable=False),
    Column("completion_window", Text, nullable=False),
    Column("invalid_lines", Text, nullable=False, server_default=text("'fail'")),
    Column("metadata", JSONB),
    Column("output_expires_seconds", Integer),
    Column("input_file_id", Text, ForeignKey("files.id"), nullable=False),
    Column("input_key", Text, nullable=False),
    Column("input_bytes", BigInteger, nullable=False),
    Column("plan_key", Text),
    Column("index_key", Text),
    Column("output_file_id", Text, ForeignKey("files.id")),
    Column("error_file_id", Text, ForeignKey("files.id")),
    Column("model", Text),
    Column("status", Text, nullable=False, server_default=text("'validating'")),
    Column("ending", Text),
    Column("errors", JSONB),
    _at("created_at", required=True),
    Column("deadline", DateTime(timezone=True), nullable=False),
    _at("in_progress_at"),
    _at("finalizing_at"),
    _at("completed_at"),
    _at("failed_at"),
    _at("expired_at"),
    _at("cancelling_at"),
    _at("cancelled_at"),
    _at("swept_at"),
    _count("total"),
    _count("succeeded"),
    _count("errored"),
    _count("cancelled"),
    _count("expired"),
    _count("input_tokens", BigInteger),
    _count("cached_tokens", BigInteger),
    _count("output_tokens", BigInteger),
    _count("reasoning_tokens", BigInteger),
    _count("chunks_total"),
    _count("chunks_done"),
    Column("claim_token", Uuid),
    _at("claimed_until"),
    _count("claims"),
    CheckConstraint(
        "status IN ('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', 'cancelling',"
        " 'cancelled')",
        name="status",
    ),
    CheckConstraint("ending IN ('completed', 'expired', 'cancelled')", name="ending"),
    CheckConstraint("invalid_lines IN ('fail', 'error')", name="invalid_lines"),
    CheckConstraint("dialect IN ('openai', 'anthropic')", name="dialect"),
    CheckConstraint(
        "succeeded >= 0 AND errored >= 0 AND cancelled >= 0 AND expired >= 0"
        " AND succeeded + errored + cancelled + expired <= total",
        name="counts",
    ),
    CheckConstraint(
        "status NOT IN ('completed', 'expired', 'cancelled') OR succeeded + errored + cancelled + expired = total",
        name="ended_counts",
    ),
    CheckConstraint("chunks_done <= chunks_total", name="chunks"),
    Index("batches_tenant_id_id_idx", "tenant_id", "id"),
    Index(
        "batches_live_idx",
        "status",
        "deadline",
        postgresql_where=text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"),
    ),
    Index("batches_input_file_id_idx", "input_file_id"),
)

chunks: Final = Table(
    "chunks",
    metadata,
    Column("batch_id", Text, ForeignKey("batches.id", ondelete="CASCADE"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("byte_start", BigInteger, nullable=False),
    Column("byte_length", BigInteger, nullable=False),
    Column("n_requests", Integer, nullable=False),
    Column("first_number", Integer, nullable=False),
    Column("cost_seconds", Float, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    Column("token", Uuid),
    Column("worker_id", Text),
    Column("worker_incarnation", Uuid),
    _count("attempts"),
    _at("leased_at"),
    _at("committed_at"),
    Column("commit_no", Integer),
    _count("succeeded"),
    _count("errored"),
    _count("cancelled"),
    _count("expired"),
    Column("out_key", Text),
    _count("out_bytes", BigInteger),
    Column("out_sha256", Text),
    Column("err_key", Text),
    _count("err_bytes", BigInteger),
    Column("err_sha256", Text),
    PrimaryKeyConstraint("batch_id", "seq"),
    CheckConstraint("state IN ('pending', 'leased', 'done')", name="state"),
    CheckConstraint("(state = 'leased') = (token IS NOT NULL)", name="token"),
    CheckConstraint("(state = 'done') = (commit_no IS NOT NULL)", name="commit_no"),
    CheckConstraint(
        "state <> 'done' OR succeeded + errored + cancelled + expired = n_requests",
        name="counts",
    ),
    Index("chunks_pending_idx", "batch_id", "seq", postgresql_where=text("state = 'pending'")),
    Index("chunks_pending_model_idx", "model", postgresql_where=text("state = 'pending'")),
    Index("chunks_leased_idx", "worker_id", postgresql_where=text("state = 'leased'")),
    Index("chunks_commit_no_idx", "batch_id", "commit_no", unique=True, postgresql_where=text("state = 'done'")),
)

workers: Final = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("incarnation", Uuid, nullable=False),
    Column("models", ARRAY(Text), nullable=False),
    Column("slots", Integer, nullable=False),
    _count("target_lines"),
    _count("in_flight"),
    Column("engine_ready", Boolean, nullable=False, server_default=text("false")),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("lines_per_second", Float),
    _at("started_at", required=True),
    _at("heartbeat_at", required=True),
)

leader: Final = Table(
    "leader",
    metadata,
    Column("id", SmallInteger, primary_key=True),
    Column("term", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    _at("elected_at", required=True),
    CheckConstraint("id = 1", name="one_row"),
)

tenant_service: Final = Table(
    "tenant_service",
    metadata,
    Column("tenant_id", Text, ForeignKey("tenants.id"), nullable=False),
    Column("model", Text, nullable=False),
    Column("tag", Float, nullable=False),
    PrimaryKeyConstraint("tenant_id", "model"),
)

usage_ledger: Final = Table(
    "usage_ledger",
    metadata,
    Column("batch_id", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("token", Uuid, nullable=False),
    Column("out_key", Text),
    Column("out_sha256", Text),
    _count("succeeded"),
    _count("errored"),
    _count("cancelled"),
    _count("expired"),
    _count("input_tokens", BigInteger),
    _count("cached_tokens", BigInteger),
    _count("output_tokens", BigInteger),
    _count("reasoning_tokens", BigInteger),
    _at("committed_at", required=True),
    UniqueConstraint("batch_id", "seq"),
    Index("usage_ledger_tenant_id_committed_at_idx", "tenant_id", "committed_at"),
)
