WITH gone AS (
    DELETE FROM egret.outbox
    USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS refused (queue, key, code, reason)
    WHERE outbox.queue = refused.queue AND outbox.key = refused.key::uuid
    RETURNING outbox.*, refused.code, refused.reason
)
INSERT INTO egret.outbox_rejected SELECT * FROM gone
ON CONFLICT (key) DO UPDATE
SET code = excluded.code, reason = excluded.reason, rejected_at = excluded.rejected_at
