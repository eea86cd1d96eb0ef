"""Checksums of what is stored, and how often results of a chunk were lost."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE batches ADD COLUMN chunks_lost INTEGER DEFAULT 0 NOT NULL;

ALTER TABLE chunks
    ADD COLUMN crc32 BIGINT,
    ADD COLUMN index_start BIGINT,
    ADD COLUMN index_bytes BIGINT,
    ADD COLUMN index_crc32 BIGINT,
    ADD COLUMN losses INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN out_crc32 BIGINT,
    ADD COLUMN err_crc32 BIGINT;
"""

_DOWN = """
ALTER TABLE chunks
    DROP COLUMN crc32, DROP COLUMN index_start, DROP COLUMN index_bytes, DROP COLUMN index_crc32, DROP COLUMN losses,
    DROP COLUMN out_crc32, DROP COLUMN err_crc32;
ALTER TABLE batches DROP COLUMN chunks_lost;
"""


def upgrade() -> None:
    """Add them: code of the schema before goes on working beside, and what it writes has none."""
    op.execute(_UP)


def downgrade() -> None:
    """Forget them."""
    op.execute(_DOWN)
