"""The first schema: tenants, files, batches, chunks, workers, the leader and the ledger."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_UP = """
CREATE TABLE audit_log (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    CONSTRAINT audit_log_pkey PRIMARY KEY (id)
);

CREATE TABLE leader (
    id SMALLSERIAL NOT NULL,
    term BIGINT NOT NULL,
    holder TEXT NOT NULL,
    elected_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT leader_pkey PRIMARY KEY (id),
    CONSTRAINT leader_one_row_check CHECK (id = 1)
);

CREATE TABLE models (
    id TEXT NOT NULL,
    endpoints TEXT[],
    max_model_len INTEGER,
    registered_by TEXT NOT NULL,
    seconds_per_line FLOAT,
    bytes_per_token FLOAT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT models_pkey PRIMARY KEY (id),
    CONSTRAINT models_registered_by_check CHECK (registered_by IN ('operator', 'worker'))
);

CREATE TABLE tenants (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    weight FLOAT DEFAULT 1 NOT NULL,
    max_lines INTEGER,
    max_input_bytes BIGINT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (id),
    CONSTRAINT tenants_weight_check CHECK (weight > 0),
    CONSTRAINT tenants_name_key UNIQUE (name)
);

CREATE TABLE usage_ledger (
    batch_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tenant_id TEXT NOT NULL,
    model TEXT NOT NULL,
    token UUID NOT NULL,
    out_key TEXT,
    out_sha256 TEXT,
    succeeded INTEGER DEFAULT 0 NOT NULL,
    errored INTEGER DEFAULT 0 NOT NULL,
    cancelled INTEGER DEFAULT 0 NOT NULL,
    expired INTEGER DEFAULT 0 NOT NULL,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    cached_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    reasoning_tokens BIGINT DEFAULT 0 NOT NULL,
    committed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT usage_ledger_batch_id_seq_key UNIQUE (batch_id, seq)
);

CREATE INDEX usage_ledger_tenant_id_committed_at_idx ON usage_ledger (tenant_id, committed_at);

CREATE TABLE workers (
    id TEXT NOT NULL,
    incarnation UUID NOT NULL,
    models TEXT[] NOT NULL,
    slots INTEGER NOT NULL,
    target_lines INTEGER DEFAULT 0 NOT NULL,
    in_flight INTEGER DEFAULT 0 NOT NULL,
    engine_ready BOOLEAN DEFAULT false NOT NULL,
    draining BOOLEAN DEFAULT false NOT NULL,
    lines_per_second FLOAT,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    heartbeat_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (id)
);

CREATE TABLE api_keys (
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    sha256 BYTEA NOT NULL,
    prefix TEXT NOT NULL,
    role TEXT DEFAULT 'tenant' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_role_check CHECK (role IN ('tenant', 'operator')),
    CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT api_keys_sha256_key UNIQUE (sha256)
);

CREATE TABLE files (
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    purpose TEXT NOT NULL,
    filename TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    object_key TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    deleted_at TIMESTAMP WITH TIME ZONE,
    purged_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT files_pkey PRIMARY KEY (id),
    CONSTRAINT files_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);

CREATE INDEX files_expires_at_idx ON files (expires_at) WHERE purged_at IS NULL;

CREATE INDEX files_object_key_idx ON files (object_key);

CREATE INDEX files_tenant_id_id_idx ON files (tenant_id, id) WHERE deleted_at IS NULL;

CREATE TABLE idempotency_keys (
    tenant_id TEXT NOT NULL,
    route TEXT NOT NULL,
    key TEXT NOT NULL,
    body_sha256 BYTEA NOT NULL,
    resource_id TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, route, key),
    CONSTRAINT idempotency_keys_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);

CREATE TABLE model_aliases (
    alias TEXT NOT NULL,
    model_id TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT model_aliases_pkey PRIMARY KEY (alias),
    CONSTRAINT model_aliases_model_id_fkey FOREIGN KEY(model_id) REFERENCES models (id) ON DELETE CASCADE
);

CREATE TABLE tenant_service (
    tenant_id TEXT NOT NULL,
    model TEXT NOT NULL,
    tag FLOAT NOT NULL,
    CONSTRAINT tenant_service_pkey PRIMARY KEY (tenant_id, model),
    CONSTRAINT tenant_service_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (id)
);

CREATE TABLE batches (
    id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    dialect TEXT DEFAULT 'openai' NOT NULL,
    endpoint TEXT NOT NULL,
    completion_window TEXT NOT NULL,
    invalid_lines TEXT DEFAULT 'fail' NOT NULL,
    metadata JSONB,
    output_expires_seconds INTEGER,
    input_file_id TEXT NOT NULL,
    input_key TEXT NOT NULL,
    input_bytes BIGINT NOT NULL,
    plan_key TEXT,
    index_key TEXT,
    output_file_id TEXT,
    error_file_id TEXT,
    model TEXT,
    status TEXT DEFAULT 'validating' NOT NULL,
    ending TEXT,
    errors JSONB,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE NOT NULL,
    in_progress_at TIMESTAMP WITH TIME ZONE,
    finalizing_at TIMESTAMP WITH TIME ZONE,
    completed_at TIMESTAMP WITH TIME ZONE,
    failed_at TIMESTAMP WITH TIME ZONE,
    expired_at TIMESTAMP WITH TIME ZONE,
    cancelling_at TIMESTAMP WITH TIME ZONE,
    cancelled_at TIMESTAMP WITH TIME ZONE,
    swept_at TIMESTAMP WITH TIME ZONE,
    total INTEGER DEFAULT 0 NOT NULL,
    succeeded INTEGER DEFAULT 0 NOT NULL,
    errored INTEGER DEFAULT 0 NOT NULL,
    cancelled INTEGER DEFAULT 0 NOT NULL,
    expired INTEGER DEFAULT 0 NOT NULL,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    cached_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    reasoning_tokens BIGINT DEFAULT 0 NOT NULL,
    chunks_total INTEGER DEFAULT 0 NOT NULL,
    chunks_done INTEGER DEFAULT 0 NOT NULL,
    claim_token UUID,
    claimed_until TIMESTAMP WITH TIME ZONE,
    claims INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT batches_pkey PRIMARY KEY (id),
    CONSTRAINT batches_status_check CHECK (status IN ('validating', 'in_progress', 'finalizing', 'completed',
        'failed', 'expired', 'cancelling', 'cancelled')),
    CONSTRAINT batches_ending_check CHECK (ending IN ('completed', 'expired', 'cancelled')),
    CONSTRAINT batches_invalid_lines_check CHECK (invalid_lines IN ('fail', 'error')),
    CONSTRAINT batches_dialect_check CHECK (dialect IN ('openai', 'anthropic')),
    CONSTRAINT batches_counts_check CHECK (succeeded >= 0 AND errored >= 0 AND cancelled >= 0 AND expired >= 0
        AND succeeded + errored + cancelled + expired <= total),
    CONSTRAINT batches_ended_counts_check CHECK (status NOT IN ('completed', 'expired', 'cancelled') OR
        succeeded + errored + cancelled + expired = total),
    CONSTRAINT batches_chunks_check CHECK (chunks_done <= chunks_total),
    CONSTRAINT batches_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (id),
    CONSTRAINT batches_input_file_id_fkey FOREIGN KEY(input_file_id) REFERENCES files (id),
    CONSTRAINT batches_output_file_id_fkey FOREIGN KEY(output_file_id) REFERENCES files (id),
    CONSTRAINT batches_error_file_id_fkey FOREIGN KEY(error_file_id) REFERENCES files (id)
);

CREATE INDEX batches_input_file_id_idx ON batches (input_file_id);

CREATE INDEX batches_live_idx ON batches (status, deadline) WHERE status IN ('validating', 'in_progress',
    'finalizing', 'cancelling');

CREATE INDEX batches_tenant_id_id_idx ON batches (tenant_id, id);

CREATE TABLE chunks (
    batch_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tenant_id TEXT NOT NULL,
    model TEXT NOT NULL,
    byte_start BIGINT NOT NULL,
    byte_length BIGINT NOT NULL,
    n_requests INTEGER NOT NULL,
    first_number INTEGER NOT NULL,
    cost_seconds FLOAT NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    token UUID,
    worker_id TEXT,
    worker_incarnation UUID,
    attempts INTEGER DEFAULT 0 NOT NULL,
    leased_at TIMESTAMP WITH TIME ZONE,
    committed_at TIMESTAMP WITH TIME ZONE,
    commit_no INTEGER,
    succeeded INTEGER DEFAULT 0 NOT NULL,
    errored INTEGER DEFAULT 0 NOT NULL,
    cancelled INTEGER DEFAULT 0 NOT NULL,
    expired INTEGER DEFAULT 0 NOT NULL,
    out_key TEXT,
    out_bytes BIGINT DEFAULT 0 NOT NULL,
    out_sha256 TEXT,
    err_key TEXT,
    err_bytes BIGINT DEFAULT 0 NOT NULL,
    err_sha256 TEXT,
    CONSTRAINT chunks_pkey PRIMARY KEY (batch_id, seq),
    CONSTRAINT chunks_state_check CHECK (state IN ('pending', 'leased', 'done')),
    CONSTRAINT chunks_token_check CHECK ((state = 'leased') = (token IS NOT NULL)),
    CONSTRAINT chunks_commit_no_check CHECK ((state = 'done') = (commit_no IS NOT NULL)),
    CONSTRAINT chunks_counts_check CHECK (state <> 'done' OR succeeded + errored + cancelled + expired = n_requests),
    CONSTRAINT chunks_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX chunks_commit_no_idx ON chunks (batch_id, commit_no) WHERE state = 'done';

CREATE INDEX chunks_leased_idx ON chunks (worker_id) WHERE state = 'leased';

CREATE INDEX chunks_pending_idx ON chunks (batch_id, seq) WHERE state = 'pending';

CREATE INDEX chunks_pending_model_idx ON chunks (model) WHERE state = 'pending';
"""

_DOWN = """
DROP TABLE chunks, batches, tenant_service, model_aliases, idempotency_keys, files, api_keys, workers,
    usage_ledger, tenants, models, leader, audit_log;
"""


def upgrade() -> None:
    """Make every table."""
    op.execute(_UP)


def downgrade() -> None:
    """Drop every table."""
    op.execute(_DOWN)
