-- Moves the rows at the places $1 that have the keys $2; as `taken.sql` finds them.
WITH gone AS (
    DELETE FROM egret.outbox
    WHERE ctid = ANY (ARRAY(
        SELECT found.ctid
        FROM unnest($1::text[], $2::text[]) AS refused (place, key) CROSS JOIN LATERAL (
            SELECT ctid FROM egret.outbox
            WHERE outbox.ctid = refused.place::tid AND outbox.key = refused.key::uuid LIMIT 1) AS found))
    RETURNING ctid, outbox.*
)
INSERT INTO egret.outbox_rejected (
       queue, key, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
       unique_window_ms, tags, metadata, callback_url, traceparent, enqueued_by, chain, after, code, reason)
SELECT queue, key, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
       unique_window_ms, tags, metadata, callback_url, traceparent, enqueued_by, chain, after, code, reason
FROM gone JOIN unnest($1::text[], $3::text[], $4::text[]) AS refused (place, code, reason)
     ON gone.ctid = refused.place::tid
ON CONFLICT (key) DO UPDATE
SET code = excluded.code, reason = excluded.reason, rejected_at = excluded.rejected_at
