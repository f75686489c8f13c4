DELETE FROM egret.outbox
USING unnest($1::text[], $2::text[]) AS taken (queue, key)
WHERE outbox.queue = taken.queue AND outbox.key = taken.key::uuid
