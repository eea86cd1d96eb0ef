"""What was used, for ever."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text, UniqueConstraint, Uuid

from slackwater.db.tables.columns import at, count, metadata

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
    count("succeeded"),
    count("errored"),
    count("cancelled"),
    count("expired"),
    count("input_tokens", BigInteger),
    count("cached_tokens", BigInteger),
    count("output_tokens", BigInteger),
    count("reasoning_tokens", BigInteger),
    at("committed_at", required=True),
    UniqueConstraint("batch_id", "seq"),
    Index("usage_ledger_tenant_id_committed_at_idx", "tenant_id", "committed_at"),
)
