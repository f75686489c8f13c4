-- Remembers how far views $15 have come: with the stamps $16, to the snapshot $17. Views that read one of them and were not
-- refreshed with it were not told what changed: they are to be computed anew.
, behind AS (
    UPDATE egret.view AS kept
    SET snapshot = NULL
    FROM egret.view_table AS read
    WHERE read.view = kept.id AND read.reads = ANY ($15::bigint[]) AND kept.id <> ALL ($15::bigint[])
)
UPDATE egret.view AS kept
SET snapshot = $17::text::pg_snapshot, stamp = reached.stamp, fresh_at = pg_catalog.clock_timestamp(),
    state = 'active', reason = NULL, failures = 0
FROM unnest($15::bigint[], $16::text[]) AS reached (id, stamp)
WHERE kept.id = reached.id
