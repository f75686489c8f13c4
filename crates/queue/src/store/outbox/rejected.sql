WITH gone AS (
    DELETE FROM egret.outbox
    USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS refused (queue, key, code, reason)
    WHERE outbox.queue = refused.queue AND outbox.key = refused.key::uuid
    RETURNING outbox.*, refused.code, refused.reason
)
INSERT INTO egret.outbox_rejected (
       queue, key, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
       unique_window_ms, tags, metadata, callback_url, traceparent, enqueued_by, chain, after, code, reason)
SELECT queue, key, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
       unique_window_ms, tags, metadata, callback_url, traceparent, enqueued_by, chain, after, code, reason
FROM gone
ON CONFLICT (key) DO UPDATE
SET code = excluded.code, reason = excluded.reason, rejected_at = excluded.rejected_at
