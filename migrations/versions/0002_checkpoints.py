"""Checkpoints of chunks: kept segments, what lines have behind them, suspects; and paused batches."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE batches ADD COLUMN paused_at TIMESTAMP WITH TIME ZONE;

ALTER TABLE chunks
    ADD COLUMN checkpoints INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN line_attempts JSONB,
    ADD COLUMN suspects INTEGER[],
    ADD COLUMN on_trial INTEGER[];

CREATE TABLE chunk_segments (
    batch_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    segment_no INTEGER NOT NULL,
    token UUID NOT NULL,
    object_key TEXT NOT NULL,
    out_bytes BIGINT NOT NULL,
    err_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    ended BYTEA NOT NULL,
    succeeded INTEGER DEFAULT 0 NOT NULL,
    errored INTEGER DEFAULT 0 NOT NULL,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    cached_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    reasoning_tokens BIGINT DEFAULT 0 NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT chunk_segments_pkey PRIMARY KEY (batch_id, seq, segment_no),
    CONSTRAINT chunk_segments_batch_id_seq_fkey FOREIGN KEY (batch_id, seq)
        REFERENCES chunks (batch_id, seq) ON DELETE CASCADE
);
"""

_DOWN = """
DROP TABLE chunk_segments;
ALTER TABLE chunks DROP COLUMN checkpoints, DROP COLUMN line_attempts, DROP COLUMN suspects, DROP COLUMN on_trial;
ALTER TABLE batches DROP COLUMN paused_at;
"""


def upgrade() -> None:
    """Add them: code of the schema before goes on working beside."""
    op.execute(_UP)


def downgrade() -> None:
    """Forget them."""
    op.execute(_DOWN)
