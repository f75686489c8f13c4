-- Keeps what a refresh changed in view $1 as its next change set: rows as users see them, those that take each other away left out, the
-- removed ones first. The changes are put in the place of CHANGES.
WITH told AS MATERIALIZED (
    SELECT content, sum(weight)::bigint AS weight FROM (CHANGES) AS every GROUP BY content HAVING sum(weight) <> 0
), next AS (
    UPDATE egret.view SET sequence = sequence + 1 WHERE id = $1 AND EXISTS (SELECT FROM told) RETURNING sequence
), kept AS (
    INSERT INTO egret.view_change_set (view, sequence, snapshot, changes, size_bytes)
    SELECT $1, next.sequence, pg_catalog.pg_current_snapshot()::text,
           (SELECT count(*) FROM told), (SELECT sum(octet_length(told.content)) FROM told)
    FROM next
    RETURNING size_bytes
), rows AS (
    INSERT INTO egret.view_change (view, sequence, place, weight, content)
    SELECT $1, next.sequence, row_number() OVER (ORDER BY told.weight > 0, told.content COLLATE "C"), told.weight, told.content::json
    FROM next CROSS JOIN told
)
SELECT size_bytes FROM kept
