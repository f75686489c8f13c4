-- Adds a refresh of view $1 and removes those of it that are beyond the latest $14.
WITH added AS (
    INSERT INTO egret.view_refresh
        (view, at, outcome, why, snapshot, changes, added, changed, removed, took_ms, waited_ms, applied_ms, error)
    SELECT $1, pg_catalog.to_timestamp($2::bigint / 1000.0), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13
    WHERE EXISTS (SELECT FROM egret.view WHERE id = $1)
)
DELETE FROM egret.view_refresh AS old
WHERE old.view = $1
  AND old.at < (SELECT latest.at FROM egret.view_refresh AS latest WHERE latest.view = $1
                ORDER BY latest.at DESC OFFSET greatest($14::bigint - 1, 0) LIMIT 1)
