-- Removes refreshes of views $1 that are beyond the latest $2 of each.
DELETE FROM egret.view_refresh AS old
USING unnest($1::bigint[]) AS trimmed (view)
CROSS JOIN LATERAL (
    SELECT latest.at FROM egret.view_refresh AS latest WHERE latest.view = trimmed.view
    ORDER BY latest.at DESC OFFSET greatest($2::bigint - 1, 0) LIMIT 1
) AS last
WHERE old.view = trimmed.view AND old.at < last.at
