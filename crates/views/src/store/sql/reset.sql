-- Tells those who follow view $1 to read it anew, because of $2. From a new beginning, if $3, the number is one that was never given.
WITH next AS (
    UPDATE egret.view
    SET sequence = CASE WHEN $3 THEN greatest(sequence + 1, (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint)
                   ELSE sequence + 1 END
    WHERE id = $1
    RETURNING sequence
)
INSERT INTO egret.view_change_set (view, sequence, snapshot, reset)
SELECT $1, next.sequence, pg_catalog.pg_current_snapshot()::text, $2 FROM next
