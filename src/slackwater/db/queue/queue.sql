-- The statements on which the promises of the queue rest. One block each: its name, what it promises, the statement.
-- Rules: every UPDATE that moves a state names the state it leaves; a lease is only ever ended by its token; what is
-- picked is picked under SKIP LOCKED in an order that is always the same; times are the database's.
-- Lock order everywhere: chunk, then batch.

-- name: claim_planning
-- The oldest batch that waits to be planned, for one planner; a planner that dies loses it when the claim lapses.
WITH next_batch AS MATERIALIZED (
    SELECT id
    FROM batches
    WHERE status = 'validating' AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY created_at, id
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE batches b
SET claim_token = gen_random_uuid(),
    claimed_until = now() + make_interval(secs => %(claim_seconds)s),
    claims = b.claims + 1
FROM next_batch n, tenants t, files f
WHERE b.id = n.id AND t.id = b.tenant_id AND f.id = b.input_file_id AND b.status = 'validating'
RETURNING b.id, b.tenant_id, b.endpoint, b.dialect, b.input_key, b.input_bytes, f.sha256 AS input_sha256,
          b.invalid_lines, b.claim_token, b.claims, t.max_lines, t.max_input_bytes;

-- name: renew_claim
-- Keep a claim on a batch alive; no row means it is lost.
UPDATE batches
SET claimed_until = now() + make_interval(secs => %(claim_seconds)s)
WHERE id = %(batch_id)s AND claim_token = %(claim_token)s
RETURNING id;

-- name: release_claim
-- Give a claim back before it lapses; it does not count. The batch may be claimed again after the pause.
UPDATE batches
SET claim_token = NULL, claimed_until = now() + make_interval(secs => %(pause_seconds)s),
    claims = greatest(claims - 1, 0)
WHERE id = %(batch_id)s AND claim_token = %(claim_token)s
RETURNING id;

-- name: known_models
-- Every name a line may carry: served models and aliases of them.
SELECT n.name, m.id, m.max_model_len, m.endpoints, m.bytes_per_token, m.seconds_per_line,
       (SELECT count(*) FROM workers w
        WHERE m.id = ANY (w.models) AND w.heartbeat_at > now() - make_interval(secs => %(lease_seconds)s)) AS live_workers
FROM (SELECT id AS name, id AS model_id FROM models
      UNION ALL
      SELECT alias, model_id FROM model_aliases
      WHERE alias NOT IN (SELECT id FROM models)) n
JOIN models m ON m.id = n.model_id;

-- name: publish_plan
-- The one moment a plan becomes visible: the batch leaves validating, if the claim still holds.
UPDATE batches
SET status = CASE WHEN %(chunks_pending)s = 0 THEN 'finalizing' ELSE 'in_progress' END,
    ending = CASE WHEN %(chunks_pending)s = 0 THEN 'completed' ELSE ending END,
    in_progress_at = now(),
    finalizing_at = CASE WHEN %(chunks_pending)s = 0 THEN now() END,
    model = %(model)s, plan_key = %(plan_key)s, index_key = %(index_key)s,
    total = %(total)s, errored = %(refused)s,
    chunks_total = %(chunks_total)s, chunks_done = %(chunks_done)s,
    claim_token = NULL, claimed_until = NULL, claims = 0
WHERE id = %(batch_id)s AND status = 'validating' AND claim_token = %(claim_token)s
RETURNING tenant_id;

-- name: insert_refused_chunk
-- The lines refused while planning, as one chunk that is done before any worker sees the batch.
WITH refused AS (
    INSERT INTO chunks (batch_id, seq, tenant_id, model, byte_start, byte_length, n_requests, first_number,
                        cost_seconds, state, committed_at, commit_no, errored, err_key, err_bytes, err_sha256,
                        err_crc32, index_start, index_bytes, index_crc32)
    VALUES (%(batch_id)s, %(seq)s, %(tenant_id)s, %(model)s, 0, 0, %(n_lines)s, 0,
            0, 'done', now(), 1, %(n_lines)s, %(err_key)s, %(err_bytes)s, %(err_sha256)s,
            %(err_crc32)s, %(index_start)s, %(index_bytes)s, %(index_crc32)s)
    RETURNING batch_id, seq, tenant_id, model, errored
)
INSERT INTO usage_ledger (batch_id, seq, tenant_id, model, token, errored)
SELECT batch_id, seq, tenant_id, model, %(claim_token)s, errored
FROM refused;

-- name: fail_planning
-- The whole input is refused: nothing runs.
UPDATE batches
SET status = 'failed', failed_at = now(), errors = %(errors)s, claim_token = NULL, claimed_until = NULL
WHERE id = %(batch_id)s AND status = 'validating' AND claim_token = %(claim_token)s
RETURNING id;

-- name: elect_leader
-- A new term, written synchronously before the new leader writes its first lease.
INSERT INTO leader (id, term, holder, elected_at)
VALUES (1, 1, %(holder)s, now())
ON CONFLICT (id) DO UPDATE SET term = leader.term + 1, holder = excluded.holder, elected_at = now()
RETURNING term;

-- name: openings
-- Live workers with room: for lines, or for one small chunk on the express slot. Only the leader writes leases, so
-- what a worker holds is counted here and not taken from its report.
SELECT w.id, w.incarnation, w.models, w.target_lines - coalesce(h.lines, 0) AS free_lines,
       coalesce(h.express, 0) = 0 AS express
FROM workers w
LEFT JOIN LATERAL (
    SELECT sum(c.n_requests) AS lines, count(*) FILTER (WHERE c.n_requests <= %(express_lines)s) AS express
    FROM chunks c
    WHERE c.worker_id = w.id AND c.state = 'leased'
) h ON true
WHERE w.engine_ready AND NOT w.draining
  AND w.heartbeat_at > now() - make_interval(secs => %(lease_seconds)s)
  AND (w.target_lines > coalesce(h.lines, 0) OR coalesce(h.express, 0) = 0)
ORDER BY w.id;

-- name: runnable
-- Batches with work to lease for the given models, each with the head of its pending chunks.
SELECT b.id AS batch_id, b.tenant_id, t.weight, extract(epoch FROM b.deadline)::float8 AS deadline, c.model,
       array_agg(c.seq ORDER BY c.seq) AS seqs,
       array_agg(c.n_requests ORDER BY c.seq) AS lines,
       array_agg(c.cost_seconds ORDER BY c.seq) AS costs,
       array_agg(c.attempts ORDER BY c.seq) AS attempts
FROM batches b
JOIN tenants t ON t.id = b.tenant_id
CROSS JOIN LATERAL (
    SELECT p.seq, p.model, p.n_requests, p.cost_seconds, p.attempts
    FROM chunks p
    WHERE p.batch_id = b.id AND p.state = 'pending'
    ORDER BY p.seq
    LIMIT %(head)s
) c
WHERE b.status = 'in_progress' AND b.paused_at IS NULL AND c.model = ANY (%(models)s)
GROUP BY b.id, b.tenant_id, t.weight, b.deadline, c.model
ORDER BY b.deadline, b.id;

-- name: lease_chunks
-- Lease exactly the named chunks, each with a new token, if this leader's term still stands and they still wait.
WITH term_holder AS MATERIALIZED (
    SELECT term FROM leader WHERE id = 1 AND term = %(term)s FOR SHARE
), granted AS (
    SELECT g.batch_id, g.seq, g.worker_id, g.incarnation
    FROM unnest(%(batch_ids)s::text[], %(seqs)s::int[], %(worker_ids)s::text[], %(incarnations)s::uuid[])
         AS g (batch_id, seq, worker_id, incarnation), term_holder
), waiting AS MATERIALIZED (
    SELECT c.batch_id, c.seq, g.worker_id, g.incarnation
    FROM chunks c
    JOIN granted g ON g.batch_id = c.batch_id AND g.seq = c.seq
    JOIN batches b ON b.id = c.batch_id AND b.status = 'in_progress' AND b.paused_at IS NULL
    WHERE c.state = 'pending'
    ORDER BY c.batch_id, c.seq
    FOR UPDATE OF c SKIP LOCKED
)
UPDATE chunks c
SET state = 'leased', token = gen_random_uuid(), worker_id = w.worker_id, worker_incarnation = w.incarnation,
    leased_at = now(), attempts = c.attempts + 1
FROM waiting w
WHERE c.batch_id = w.batch_id AND c.seq = w.seq AND c.state = 'pending'
RETURNING c.batch_id, c.seq, c.worker_id, c.n_requests;

-- name: reap_leases
-- Leases whose worker fell silent or came back as another incarnation go back to pending. One without a worker is the
-- finisher's own (lease_to_close), and ends with its claim. It needs no term: who is dead, the database's clock says.
WITH dead AS MATERIALIZED (
    SELECT c.batch_id, c.seq
    FROM chunks c
    LEFT JOIN workers w ON w.id = c.worker_id
    WHERE c.state = 'leased' AND c.worker_id IS NOT NULL
      AND (w.id IS NULL OR w.incarnation <> c.worker_incarnation
           OR w.heartbeat_at < now() - make_interval(secs => %(lease_seconds)s))
    ORDER BY c.batch_id, c.seq
    LIMIT %(limit)s
    FOR UPDATE OF c SKIP LOCKED
)
UPDATE chunks c
SET state = 'pending', token = NULL, worker_id = NULL, worker_incarnation = NULL
FROM dead d
WHERE c.batch_id = d.batch_id AND c.seq = d.seq AND c.state = 'leased'
RETURNING c.batch_id, c.seq;

-- name: register_worker
-- A worker process starts: a new incarnation ends whatever the name held before.
INSERT INTO workers (id, incarnation, models, slots, started_at, heartbeat_at)
VALUES (%(worker_id)s, %(incarnation)s, %(models)s, %(slots)s, now(), now())
ON CONFLICT (id) DO UPDATE
SET incarnation = excluded.incarnation, models = excluded.models, slots = excluded.slots, engine_ready = false,
    target_lines = 0, in_flight = 0, started_at = now(), heartbeat_at = now()
RETURNING draining;

-- name: leave
-- A worker that was told to stop says so: it is dead from now on, and what it still holds goes back at once, uncounted.
WITH gone AS (
    UPDATE workers
    SET engine_ready = false, target_lines = 0, in_flight = 0,
        heartbeat_at = least(heartbeat_at, now() - make_interval(secs => %(lease_seconds)s))
    WHERE id = %(worker_id)s AND incarnation = %(incarnation)s
    RETURNING id, incarnation
), held AS MATERIALIZED (
    SELECT c.batch_id, c.seq
    FROM chunks c
    JOIN gone g ON c.worker_id = g.id AND c.worker_incarnation = g.incarnation
    WHERE c.state = 'leased'
    ORDER BY c.batch_id, c.seq
    FOR UPDATE OF c
)
UPDATE chunks c
SET state = 'pending', token = NULL, worker_id = NULL, worker_incarnation = NULL, attempts = greatest(attempts - 1, 0)
FROM held h
WHERE c.batch_id = h.batch_id AND c.seq = h.seq AND c.state = 'leased'
RETURNING c.batch_id, c.seq;

-- name: announce_model
-- A model is known once a worker ever announced it.
INSERT INTO models (id, max_model_len, registered_by)
VALUES (%(model_id)s, %(max_model_len)s, 'worker')
ON CONFLICT (id) DO UPDATE SET max_model_len = coalesce(excluded.max_model_len, models.max_model_len);

-- name: sync
-- The one statement a worker polls with: heartbeat and load in; its leases, with whether their batch is stopped, out.
-- No row at all means that this incarnation is no longer the worker of that name.
WITH beat AS (
    UPDATE workers
    SET heartbeat_at = now(), target_lines = %(target_lines)s, in_flight = %(in_flight)s,
        engine_ready = %(engine_ready)s, lines_per_second = %(lines_per_second)s
    WHERE id = %(worker_id)s AND incarnation = %(incarnation)s
    RETURNING id, models, draining
)
SELECT beat.draining,
       EXISTS (SELECT 1 FROM chunks p
               JOIN batches r ON r.id = p.batch_id AND r.status = 'in_progress' AND r.paused_at IS NULL
               WHERE p.state = 'pending' AND p.model = ANY (beat.models)) AS work_waits,
       c.batch_id, c.seq, c.token, c.tenant_id, c.model, c.byte_start, c.byte_length, c.n_requests, c.first_number,
       c.attempts, c.checkpoints, c.crc32, b.index_key, c.index_start, c.index_bytes, c.index_crc32, b.endpoint,
       b.dialect, b.model AS asked_model,
       CASE WHEN b.status <> 'in_progress' THEN b.ending
            WHEN b.paused_at IS NOT NULL THEN 'paused' END AS stopped,
       coalesce(b.plan_key, b.input_key) AS source_key
FROM beat
LEFT JOIN chunks c ON c.worker_id = beat.id AND c.state = 'leased' AND c.worker_incarnation = %(incarnation)s
LEFT JOIN batches b ON b.id = c.batch_id
ORDER BY c.leased_at, c.batch_id, c.seq;

-- name: commit_chunk
-- Flip one chunk's pointer to its new result objects, count its lines, write its ledger row: all or nothing, and only
-- while its lease token stands. The last chunk of a running batch moves it to finalizing.
-- The batch row is locked before its counter becomes the chunk's place in the commit order.
WITH held AS MATERIALIZED (
    SELECT batch_id, seq, tenant_id, model
    FROM chunks
    WHERE batch_id = %(batch_id)s AND seq = %(seq)s AND state = 'leased' AND token = %(token)s
    FOR UPDATE
), counted AS (
    UPDATE batches b
    SET succeeded = b.succeeded + %(succeeded)s, errored = b.errored + %(errored)s,
        cancelled = b.cancelled + %(cancelled)s, expired = b.expired + %(expired)s,
        input_tokens = b.input_tokens + %(input_tokens)s, cached_tokens = b.cached_tokens + %(cached_tokens)s,
        output_tokens = b.output_tokens + %(output_tokens)s,
        reasoning_tokens = b.reasoning_tokens + %(reasoning_tokens)s,
        chunks_done = b.chunks_done + 1,
        status = CASE WHEN b.status = 'in_progress' AND b.chunks_done + 1 = b.chunks_total
                      THEN 'finalizing' ELSE b.status END,
        ending = CASE WHEN b.status = 'in_progress' AND b.chunks_done + 1 = b.chunks_total
                      THEN 'completed' ELSE b.ending END,
        finalizing_at = CASE WHEN b.status = 'in_progress' AND b.chunks_done + 1 = b.chunks_total
                             THEN now() ELSE b.finalizing_at END
    FROM held h
    WHERE b.id = h.batch_id AND b.status IN ('in_progress', 'cancelling', 'finalizing')
    RETURNING b.chunks_done + b.chunks_lost AS place
), done AS (
    UPDATE chunks c
    SET state = 'done', token = NULL, committed_at = now(), commit_no = counted.place,
        succeeded = %(succeeded)s, errored = %(errored)s, cancelled = %(cancelled)s, expired = %(expired)s,
        out_key = %(out_key)s, out_bytes = %(out_bytes)s, out_sha256 = %(out_sha256)s,
        err_key = %(err_key)s, err_bytes = %(err_bytes)s, err_sha256 = %(err_sha256)s,
        out_crc32 = %(out_crc32)s, err_crc32 = %(err_crc32)s
    FROM held h, counted
    WHERE c.batch_id = h.batch_id AND c.seq = h.seq AND c.state = 'leased' AND c.token = %(token)s
    RETURNING c.batch_id
)
INSERT INTO usage_ledger (batch_id, seq, tenant_id, model, token, out_key, out_sha256, succeeded, errored, cancelled,
                          expired, input_tokens, cached_tokens, output_tokens, reasoning_tokens)
SELECT h.batch_id, h.seq, h.tenant_id, h.model, %(token)s, %(out_key)s, %(out_sha256)s, %(succeeded)s, %(errored)s,
       %(cancelled)s, %(expired)s, %(input_tokens)s, %(cached_tokens)s, %(output_tokens)s, %(reasoning_tokens)s
FROM held h, done
RETURNING batch_id;

-- name: was_committed
-- Whether the commit of this lease stands: its ledger row bears its token.
SELECT 1 FROM usage_ledger WHERE batch_id = %(batch_id)s AND seq = %(seq)s AND token = %(token)s;

-- name: checkpoint_chunk
-- Keep what a lease has finished so far, so that whoever holds the chunk next runs only the rest: only while its token
-- stands. Asked for again with the same number, nothing is doubled. Nothing is counted or charged before the commit.
WITH held AS (
    UPDATE chunks
    SET checkpoints = %(checkpoint_no)s, line_attempts = %(line_attempts)s, suspects = %(suspects)s,
        on_trial = %(on_trial)s
    WHERE batch_id = %(batch_id)s AND seq = %(seq)s AND state = 'leased' AND token = %(token)s
    RETURNING batch_id, seq
), segment AS (
    INSERT INTO chunk_segments (batch_id, seq, segment_no, token, object_key, out_bytes, err_bytes, sha256, ended,
                                succeeded, errored, input_tokens, cached_tokens, output_tokens, reasoning_tokens)
    SELECT h.batch_id, h.seq, %(checkpoint_no)s, %(token)s, %(object_key)s, %(out_bytes)s, %(err_bytes)s, %(sha256)s,
           %(ended)s, %(succeeded)s, %(errored)s, %(input_tokens)s, %(cached_tokens)s, %(output_tokens)s,
           %(reasoning_tokens)s
    FROM held h
    WHERE %(object_key)s::text IS NOT NULL
    ON CONFLICT (batch_id, seq, segment_no) DO NOTHING
)
SELECT batch_id FROM held;

-- name: checkpoint_state
-- What earlier leases of a chunk left behind, beside their segments.
SELECT line_attempts, suspects, on_trial FROM chunks WHERE batch_id = %(batch_id)s AND seq = %(seq)s;

-- name: segments
-- The finished lines that earlier leases of a chunk kept.
SELECT segment_no, object_key, out_bytes, err_bytes, sha256, ended, succeeded, errored, input_tokens, cached_tokens,
       output_tokens, reasoning_tokens
FROM chunk_segments
WHERE batch_id = %(batch_id)s AND seq = %(seq)s
ORDER BY segment_no;

-- name: forget_segment
-- A segment whose object is gone or not what was written: its lines run again.
DELETE FROM chunk_segments s
USING chunks c
WHERE s.batch_id = %(batch_id)s AND s.seq = %(seq)s AND s.segment_no = %(segment_no)s
  AND c.batch_id = s.batch_id AND c.seq = s.seq AND c.state = 'leased' AND c.token = %(token)s
RETURNING s.segment_no;

-- name: release_chunk
-- A worker gives a chunk back unfinished; the attempt does not count.
UPDATE chunks
SET state = 'pending', token = NULL, worker_id = NULL, worker_incarnation = NULL, attempts = greatest(attempts - 1, 0)
WHERE batch_id = %(batch_id)s AND seq = %(seq)s AND state = 'leased' AND token = %(token)s
RETURNING batch_id;

-- name: learn_model
-- What committed chunks taught about a model, as exponentially weighted means.
UPDATE models
SET seconds_per_line = CASE WHEN seconds_per_line IS NULL THEN %(seconds_per_line)s
                            ELSE seconds_per_line * 0.8 + %(seconds_per_line)s * 0.2 END,
    bytes_per_token = CASE WHEN %(bytes_per_token)s::float8 IS NULL THEN bytes_per_token
                           WHEN bytes_per_token IS NULL THEN %(bytes_per_token)s
                           ELSE bytes_per_token * 0.8 + %(bytes_per_token)s * 0.2 END
WHERE id = %(model_id)s;

-- name: expire_batches
-- Batches whose window is over stop running: what is committed stays, the rest will be written as expired.
WITH overdue AS MATERIALIZED (
    SELECT id
    FROM batches
    WHERE status = 'in_progress' AND deadline < now()
    ORDER BY deadline, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE batches b
SET status = 'finalizing', ending = 'expired', finalizing_at = now()
FROM overdue o
WHERE b.id = o.id AND b.status = 'in_progress'
RETURNING b.id;

-- name: claim_finishing
-- A batch ready to be assembled: no chunk of it is leased any more, or the grace given to its workers is over.
WITH next_batch AS MATERIALIZED (
    SELECT b.id
    FROM batches b
    WHERE b.status IN ('finalizing', 'cancelling')
      AND (b.claimed_until IS NULL OR b.claimed_until < now())
      AND (coalesce(b.finalizing_at, b.cancelling_at) < now() - make_interval(secs => %(grace_seconds)s)
           OR NOT EXISTS (SELECT 1 FROM chunks c WHERE c.batch_id = b.id AND c.state = 'leased'))
    ORDER BY coalesce(b.finalizing_at, b.cancelling_at), b.id
    LIMIT 1
    FOR UPDATE OF b SKIP LOCKED
)
UPDATE batches b
SET claim_token = gen_random_uuid(), claimed_until = now() + make_interval(secs => %(claim_seconds)s),
    claims = b.claims + 1
FROM next_batch n
WHERE b.id = n.id AND b.status IN ('finalizing', 'cancelling')
RETURNING b.id, b.tenant_id, b.dialect, b.ending, b.total, b.output_expires_seconds, b.claim_token, b.claims,
          coalesce(b.plan_key, b.input_key) AS source_key;

-- name: revoke_leases
-- The grace is over: whatever a worker of this batch still writes will be refused.
UPDATE chunks
SET state = 'pending', token = NULL, worker_id = NULL, worker_incarnation = NULL
WHERE batch_id = %(batch_id)s AND state = 'leased'
RETURNING seq;

-- name: lease_to_close
-- Chunks of a stopped batch of which something is kept: whoever finishes the batch leases them, to commit that.
UPDATE chunks c
SET state = 'leased', token = gen_random_uuid(), leased_at = now()
FROM batches b
WHERE b.id = %(batch_id)s AND b.status IN ('finalizing', 'cancelling') AND b.claim_token = %(claim_token)s
  AND c.batch_id = b.id AND c.state = 'pending' AND c.checkpoints > 0
RETURNING c.batch_id, c.seq, c.token, c.tenant_id, c.model, c.byte_start, c.byte_length, c.n_requests, c.first_number,
          c.attempts, c.checkpoints, c.crc32, b.index_key, c.index_start, c.index_bytes, c.index_crc32, b.endpoint,
          b.dialect, b.model AS asked_model, b.ending AS stopped,
          coalesce(b.plan_key, b.input_key) AS source_key;

-- name: committed_parts
-- The result objects of a batch in commit order.
SELECT seq, out_key, out_bytes, out_sha256, out_crc32, err_key, err_bytes, err_sha256, err_crc32
FROM chunks
WHERE batch_id = %(batch_id)s AND state = 'done'
ORDER BY commit_no;

-- name: unrun_chunks
-- The chunks that no worker will ever run, in plan order.
SELECT c.seq, c.byte_start, c.byte_length, c.n_requests, c.first_number, c.crc32, b.index_key, c.index_start,
       c.index_bytes, c.index_crc32, coalesce(b.plan_key, b.input_key) AS source_key
FROM chunks c
JOIN batches b ON b.id = c.batch_id
WHERE c.batch_id = %(batch_id)s AND c.state = 'pending'
ORDER BY c.seq;

-- name: lost_chunks
-- Committed chunks of which a result object is lost, and what their commit counted and charged.
SELECT c.seq, c.byte_start, c.byte_length, c.n_requests, c.first_number, c.crc32, b.index_key, c.index_start,
       c.index_bytes, c.index_crc32, coalesce(b.plan_key, b.input_key) AS source_key,
       u.succeeded, u.errored, u.cancelled, u.expired, u.input_tokens, u.cached_tokens, u.output_tokens,
       u.reasoning_tokens
FROM chunks c
JOIN batches b ON b.id = c.batch_id
JOIN usage_ledger u ON u.batch_id = c.batch_id AND u.seq = c.seq
WHERE c.batch_id = %(batch_id)s AND c.seq = ANY (%(seqs)s) AND c.state = 'done'
ORDER BY c.seq;

-- name: rerun_lost
-- Results were lost while there is time to run their lines again: what they counted and charged is taken back, and the
-- batch goes on. Only under the finisher's claim, and only so often for one chunk.
WITH lost AS MATERIALIZED (
    SELECT c.batch_id, c.seq
    FROM chunks c
    JOIN batches b ON b.id = c.batch_id
    WHERE c.batch_id = %(batch_id)s AND c.seq = ANY (%(seqs)s) AND c.state = 'done' AND c.byte_length > 0
      AND c.losses < %(most_losses)s
      AND b.status = 'finalizing' AND b.ending = 'completed' AND b.claim_token = %(claim_token)s AND b.deadline > now()
    ORDER BY c.seq
    FOR UPDATE
), taken_back AS (
    DELETE FROM usage_ledger u USING lost l WHERE u.batch_id = l.batch_id AND u.seq = l.seq
    RETURNING u.batch_id, u.succeeded, u.errored, u.cancelled, u.expired, u.input_tokens, u.cached_tokens,
              u.output_tokens, u.reasoning_tokens
), sums AS (
    SELECT batch_id, count(*)::int AS chunks, sum(succeeded) AS succeeded, sum(errored) AS errored,
           sum(cancelled) AS cancelled, sum(expired) AS expired, sum(input_tokens) AS input_tokens,
           sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens,
           sum(reasoning_tokens) AS reasoning_tokens
    FROM taken_back
    GROUP BY batch_id
), running AS (
    UPDATE batches b
    SET status = 'in_progress', ending = NULL, finalizing_at = NULL, claim_token = NULL, claimed_until = NULL,
        claims = 0, succeeded = b.succeeded - s.succeeded, errored = b.errored - s.errored,
        cancelled = b.cancelled - s.cancelled, expired = b.expired - s.expired,
        input_tokens = b.input_tokens - s.input_tokens, cached_tokens = b.cached_tokens - s.cached_tokens,
        output_tokens = b.output_tokens - s.output_tokens,
        reasoning_tokens = b.reasoning_tokens - s.reasoning_tokens,
        chunks_done = b.chunks_done - s.chunks, chunks_lost = b.chunks_lost + s.chunks
    FROM sums s
    WHERE b.id = s.batch_id AND b.status = 'finalizing'
    RETURNING b.id
)
UPDATE chunks c
SET state = 'pending', committed_at = NULL, commit_no = NULL, losses = c.losses + 1,
    succeeded = 0, errored = 0, cancelled = 0, expired = 0,
    out_key = NULL, out_bytes = 0, out_sha256 = NULL, out_crc32 = NULL, worker_id = NULL, worker_incarnation = NULL,
    err_key = NULL, err_bytes = 0, err_sha256 = NULL, err_crc32 = NULL
FROM lost l, running r
WHERE c.batch_id = l.batch_id AND c.seq = l.seq AND c.state = 'done'
RETURNING c.seq;

-- name: replace_result
-- Results were lost and cannot run again: error lines stand in their place, and what is lost is not charged. Only under
-- the finisher's claim. The chunk keeps its place in the commit order.
WITH lost AS MATERIALIZED (
    SELECT c.batch_id, c.seq
    FROM chunks c
    JOIN batches b ON b.id = c.batch_id
    WHERE c.batch_id = %(batch_id)s AND c.seq = %(seq)s AND c.state = 'done'
      AND b.status IN ('finalizing', 'cancelling') AND b.claim_token = %(claim_token)s
    FOR UPDATE
), before AS (
    SELECT u.batch_id, u.succeeded, u.errored, u.cancelled, u.expired, u.input_tokens, u.cached_tokens,
           u.output_tokens, u.reasoning_tokens
    FROM usage_ledger u
    JOIN lost l ON l.batch_id = u.batch_id AND l.seq = u.seq
), charged AS (
    UPDATE usage_ledger u
    SET succeeded = %(succeeded)s, errored = %(errored)s, cancelled = %(cancelled)s, expired = %(expired)s,
        input_tokens = %(input_tokens)s, cached_tokens = %(cached_tokens)s, output_tokens = %(output_tokens)s,
        reasoning_tokens = %(reasoning_tokens)s, out_key = %(out_key)s, out_sha256 = %(out_sha256)s
    FROM lost l
    WHERE u.batch_id = l.batch_id AND u.seq = l.seq
), counted AS (
    UPDATE batches b
    SET succeeded = b.succeeded - o.succeeded + %(succeeded)s, errored = b.errored - o.errored + %(errored)s,
        cancelled = b.cancelled - o.cancelled + %(cancelled)s, expired = b.expired - o.expired + %(expired)s,
        input_tokens = b.input_tokens - o.input_tokens + %(input_tokens)s,
        cached_tokens = b.cached_tokens - o.cached_tokens + %(cached_tokens)s,
        output_tokens = b.output_tokens - o.output_tokens + %(output_tokens)s,
        reasoning_tokens = b.reasoning_tokens - o.reasoning_tokens + %(reasoning_tokens)s
    FROM before o
    WHERE b.id = o.batch_id AND b.status IN ('finalizing', 'cancelling')
)
UPDATE chunks c
SET succeeded = %(succeeded)s, errored = %(errored)s, cancelled = %(cancelled)s, expired = %(expired)s,
    out_key = %(out_key)s, out_bytes = %(out_bytes)s, out_sha256 = %(out_sha256)s, out_crc32 = %(out_crc32)s,
    err_key = %(err_key)s, err_bytes = %(err_bytes)s, err_sha256 = %(err_sha256)s, err_crc32 = %(err_crc32)s
FROM lost l
WHERE c.batch_id = l.batch_id AND c.seq = l.seq AND c.state = 'done'
RETURNING c.seq;

-- name: finish_batch
-- The end of a batch, if the claim still holds. Its counts add up or the table refuses the row.
UPDATE batches
SET status = ending, output_file_id = %(output_file_id)s, error_file_id = %(error_file_id)s,
    cancelled = cancelled + CASE WHEN ending = 'cancelled' THEN %(unrun)s ELSE 0 END,
    expired = expired + CASE WHEN ending = 'expired' THEN %(unrun)s ELSE 0 END,
    completed_at = CASE WHEN ending = 'completed' THEN now() END,
    expired_at = CASE WHEN ending = 'expired' THEN now() END,
    cancelled_at = CASE WHEN ending = 'cancelled' THEN now() END,
    claim_token = NULL, claimed_until = NULL
WHERE id = %(batch_id)s AND status IN ('finalizing', 'cancelling') AND claim_token = %(claim_token)s
RETURNING id;

-- name: insert_result_file
-- One result file of a batch that ends in the same transaction.
INSERT INTO files (id, tenant_id, purpose, filename, size_bytes, sha256, object_key, created_at, expires_at)
VALUES (%(file_id)s, %(tenant_id)s, 'batch_output', %(filename)s, %(size_bytes)s, %(sha256)s, %(object_key)s, now(),
        now() + make_interval(secs => %(expires_seconds)s));

-- name: fail_finishing
-- A batch that nobody can assemble is set aside; it says why, and nothing of it is charged.
WITH failed AS (
    UPDATE batches
    SET status = 'failed', failed_at = now(), errors = %(errors)s, claim_token = NULL, claimed_until = NULL,
        input_tokens = 0, cached_tokens = 0, output_tokens = 0, reasoning_tokens = 0
    WHERE id = %(batch_id)s AND status IN ('finalizing', 'cancelling') AND claim_token = %(claim_token)s
    RETURNING id
), taken_back AS (
    DELETE FROM usage_ledger u USING failed f WHERE u.batch_id = f.id
)
SELECT id FROM failed;

-- name: sweepable_batches
-- Ended batches whose working objects and chunk rows are no longer needed.
SELECT b.id, b.plan_key, b.index_key, b.status
FROM batches b
WHERE b.swept_at IS NULL AND b.status IN ('completed', 'failed', 'expired', 'cancelled')
  AND coalesce(b.completed_at, b.failed_at, b.expired_at, b.cancelled_at)
      < now() - make_interval(secs => %(keep_seconds)s)
ORDER BY b.id
LIMIT %(limit)s;

-- name: referenced_keys
-- Which of these objects some file that still has its bytes points at.
SELECT object_key FROM files WHERE object_key = ANY (%(keys)s) AND purged_at IS NULL;

-- name: forget_repeats
-- Records of requests that can no longer be repeated: the longest memory is a day.
WITH old AS MATERIALIZED (
    SELECT tenant_id, route, key FROM idempotency_keys
    WHERE created_at < now() - interval '1 day'
    ORDER BY tenant_id, route, key
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_keys i USING old o
WHERE i.tenant_id = o.tenant_id AND i.route = o.route AND i.key = o.key
RETURNING i.key;

-- name: needed_objects
-- Which of these objects somebody may still need: a file's bytes, or whatever belongs to a batch that is not swept yet.
SELECT k.key
FROM unnest(%(keys)s::text[], %(owners)s::text[]) AS k (key, owner)
WHERE EXISTS (SELECT 1 FROM files f WHERE f.object_key = k.key AND f.purged_at IS NULL)
   OR EXISTS (SELECT 1 FROM batches b WHERE b.id = k.owner AND b.swept_at IS NULL
              AND (k.key LIKE 'plans/%%' OR k.key LIKE 'parts/%%'
                   OR b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')));

-- name: sweep_chunks
-- The chunk rows of an ended batch go; the ledger keeps what they did.
WITH ended AS (
    UPDATE batches SET swept_at = now()
    WHERE id = %(batch_id)s AND swept_at IS NULL AND status IN ('completed', 'failed', 'expired', 'cancelled')
    RETURNING id
)
DELETE FROM chunks c USING ended e WHERE c.batch_id = e.id;

-- name: spent_segments
-- Checkpoints of batches that have ended: nobody takes them over any more.
SELECT s.batch_id, s.seq, s.segment_no, s.object_key
FROM chunk_segments s
JOIN batches b ON b.id = s.batch_id
WHERE b.status IN ('completed', 'failed', 'expired', 'cancelled')
ORDER BY s.batch_id, s.seq, s.segment_no
LIMIT %(limit)s;

-- name: forget_segments
-- Rows of checkpoints whose objects are gone.
DELETE FROM chunk_segments s
USING unnest(%(batch_ids)s::text[], %(seqs)s::int[], %(segment_nos)s::int[]) AS g (batch_id, seq, segment_no)
WHERE s.batch_id = g.batch_id AND s.seq = g.seq AND s.segment_no = g.segment_no
RETURNING s.batch_id;

-- name: expire_files
-- Files past their time are hidden like deleted ones.
WITH old AS MATERIALIZED (
    SELECT id FROM files
    WHERE purged_at IS NULL AND deleted_at IS NULL AND expires_at < now()
    ORDER BY expires_at, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE files f SET deleted_at = now() FROM old o WHERE f.id = o.id AND f.deleted_at IS NULL
RETURNING f.id;

-- name: purgeable_files
-- Hidden files whose bytes no live batch needs any more.
SELECT f.id, f.object_key
FROM files f
WHERE f.deleted_at IS NOT NULL AND f.purged_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM batches b
                  WHERE b.input_file_id = f.id
                    AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))
ORDER BY f.id
LIMIT %(limit)s;

-- name: mark_purged
-- The bytes of these files are gone.
UPDATE files SET purged_at = now() WHERE id = ANY (%(file_ids)s) AND deleted_at IS NOT NULL AND purged_at IS NULL;

-- name: load_tags
-- Virtual service times as the last leader left them.
SELECT tenant_id, model, tag FROM tenant_service;

-- name: save_tags
-- Checkpoint the virtual service times, if this leader's term still stands.
WITH term_holder AS MATERIALIZED (
    SELECT term FROM leader WHERE id = 1 AND term = %(term)s FOR SHARE
)
INSERT INTO tenant_service (tenant_id, model, tag)
SELECT t.tenant_id, t.model, t.tag
FROM unnest(%(tenant_ids)s::text[], %(models)s::text[], %(tags)s::float8[]) AS t (tenant_id, model, tag), term_holder
ON CONFLICT (tenant_id, model) DO UPDATE SET tag = excluded.tag;

-- name: queue_view
-- What waits and what runs, read at one instant, for the gauges: (gauge, label, value).
WITH live_batches AS MATERIALIZED (
    SELECT id, status, deadline FROM batches
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
), open_chunks AS MATERIALIZED (
    SELECT c.model, c.state, c.n_requests, b.deadline
    FROM live_batches b
    JOIN chunks c ON c.batch_id = b.id
), live_workers AS MATERIALIZED (
    SELECT models, CASE WHEN heartbeat_at < now() - make_interval(secs => %(lease_seconds)s) THEN 'lost'
                        WHEN draining THEN 'draining' ELSE 'live' END AS state
    FROM workers
)
SELECT 'read_at' AS gauge, '' AS label, extract(epoch FROM now())::float8 AS value
UNION ALL
SELECT 'batches', status, count(*) FROM live_batches GROUP BY status
UNION ALL
SELECT 'chunks', state, count(*) FROM open_chunks GROUP BY state
UNION ALL
SELECT 'lines_waiting', m.id, coalesce(sum(c.n_requests) FILTER (WHERE c.state <> 'done'), 0)
FROM models m LEFT JOIN open_chunks c ON c.model = m.id GROUP BY m.id
UNION ALL
SELECT 'next_deadline', model, extract(epoch FROM min(deadline)) FROM open_chunks WHERE state <> 'done' GROUP BY model
UNION ALL
SELECT 'workers', state, count(*) FROM live_workers GROUP BY state
UNION ALL
SELECT 'model_workers', m.id, count(w.state) FROM models m
LEFT JOIN live_workers w ON m.id = ANY (w.models) AND w.state <> 'lost' GROUP BY m.id;

-- name: forget_workers
-- Workers that fell silent long ago, an hour at the least: one that is only cut off must find its row when it is back.
DELETE FROM workers w
WHERE w.heartbeat_at < now() - make_interval(secs => greatest(%(keep_seconds)s, 3600))
  AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.worker_id = w.id AND c.state = 'leased')
RETURNING w.id;

-- name: restore_leases
-- After a restore no lease stands: its holder ran in another life of this database.
UPDATE chunks
SET state = 'pending', token = NULL, worker_id = NULL, worker_incarnation = NULL
WHERE state = 'leased';

-- name: restore_claims
-- Nor does a claim on a batch.
UPDATE batches SET claim_token = NULL, claimed_until = NULL WHERE claim_token IS NOT NULL;

-- name: restore_workers
-- Nor is a worker ready before it registers anew.
UPDATE workers SET engine_ready = false WHERE engine_ready;

-- name: audit_batch
-- One batch as its rows have it.
SELECT b.status, b.errors, b.in_progress_at IS NOT NULL AS planned, b.input_key, o.object_key AS output_key,
       e.object_key AS error_key, i.id IS NULL OR i.deleted_at IS NOT NULL AS input_deleted,
       o.deleted_at IS NOT NULL AS output_deleted, e.deleted_at IS NOT NULL AS error_deleted, b.total, b.succeeded,
       b.errored, b.cancelled, b.expired, b.input_tokens, b.output_tokens, b.chunks_total,
       (SELECT count(*) FROM chunks c WHERE c.batch_id = b.id) AS chunks_kept,
       (SELECT count(*) FROM chunks c WHERE c.batch_id = b.id AND c.state = 'done') AS chunks_committed
FROM batches b
LEFT JOIN files i ON i.id = b.input_file_id
LEFT JOIN files o ON o.id = b.output_file_id
LEFT JOIN files e ON e.id = b.error_file_id
WHERE b.id = %(batch_id)s;

-- name: audit_pointers
-- Every stored result object that a row of the batch points at.
SELECT 'file' AS kind, f.object_key AS key, f.size_bytes, f.sha256
FROM batches b JOIN files f ON f.id IN (b.input_file_id, b.output_file_id, b.error_file_id)
WHERE b.id = %(batch_id)s AND f.purged_at IS NULL
UNION ALL
SELECT 'part', c.out_key, c.out_bytes, c.out_sha256 FROM chunks c
WHERE c.batch_id = %(batch_id)s AND c.out_key IS NOT NULL
UNION ALL
SELECT 'part', c.err_key, c.err_bytes, c.err_sha256 FROM chunks c
WHERE c.batch_id = %(batch_id)s AND c.err_key IS NOT NULL;

-- name: audit_ledger
-- The ledger's rows of the batch, added up.
SELECT count(*) AS rows, coalesce(sum(succeeded), 0)::bigint AS succeeded,
       coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
       count(*) FILTER (WHERE succeeded = 0 AND input_tokens + output_tokens > 0) AS costly_without_success
FROM usage_ledger
WHERE batch_id = %(batch_id)s;
