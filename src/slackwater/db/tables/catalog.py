"""The models that lines may name."""

from typing import Final

from sqlalchemy import CheckConstraint, Column, Float, ForeignKey, Integer, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY

from slackwater.db.tables.columns import at, metadata

models: Final = Table(
    "models",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoints", ARRAY(Text)),
    Column("max_model_len", Integer),
    Column("registered_by", Text, nullable=False),
    Column("seconds_per_line", Float),
    Column("bytes_per_token", Float),
    at("created_at", required=True),
    CheckConstraint("registered_by IN ('operator', 'worker')", name="registered_by"),
)

model_aliases: Final = Table(
    "model_aliases",
    metadata,
    Column("alias", Text, primary_key=True),
    Column("model_id", Text, ForeignKey("models.id", ondelete="CASCADE"), nullable=False),
    at("created_at", required=True),
)
