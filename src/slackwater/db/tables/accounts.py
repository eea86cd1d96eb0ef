"""Tenants, their keys, the requests they may repeat, and who did what."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from slackwater.db.tables.columns import at, metadata

tenants: Final = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("weight", Float, nullable=False, server_default=text("1")),
    Column("max_lines", Integer),
    Column("max_input_bytes", BigInteger),
    at("created_at", required=True),
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
    at("created_at", required=True),
    at("expires_at"),
    at("revoked_at"),
    at("last_used_at"),
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
    at("created_at", required=True),
    PrimaryKeyConstraint("tenant_id", "route", "key"),
)

audit_log: Final = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    at("at", required=True),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
)
