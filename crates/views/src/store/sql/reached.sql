-- Remembers how far views $1 have come: with the stamps $2, to the snapshot $3, at this moment those that change as time passes ($4). Views that read one of them and were not
-- refreshed with it were not told what changed: they are to be computed anew.
WITH behind AS (
    UPDATE egret.view AS kept
    SET snapshot = NULL
    FROM egret.view_table AS read
    WHERE read.view = kept.id AND read.reads = ANY ($1::bigint[]) AND kept.id <> ALL ($1::bigint[])
)
UPDATE egret.view AS kept
SET snapshot = $3::text::pg_snapshot, stamp = reached.stamp, fresh_at = pg_catalog.clock_timestamp(),
    clock = CASE WHEN reached.has_clock THEN pg_catalog.now() END,
    state = 'active', reason = NULL, failures = 0
FROM unnest($1::bigint[], $2::text[], $4::boolean[]) AS reached (id, stamp, has_clock)
WHERE kept.id = reached.id
