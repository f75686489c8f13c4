WITH gone AS (
    DELETE FROM egret.outbox_rejected RETURNING *
), woken AS (
    SELECT pg_notify('egret_outbox', '')
)
INSERT INTO egret.outbox (
       queue, key, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
       unique_window_ms, tags, metadata, callback_url, traceparent, enqueued_by, chain, after)
SELECT queue, key, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
       unique_window_ms, tags, metadata, callback_url, traceparent, enqueued_by, chain, after
FROM gone, woken
ON CONFLICT (enqueued_by, queue, key) DO NOTHING
