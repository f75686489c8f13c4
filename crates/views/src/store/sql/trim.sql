-- Removes refreshes of views $1 that are beyond the latest $2 of each.
DELETE FROM egret.view_refresh AS old
WHERE old.view = ANY ($1::bigint[])
  AND old.at < (SELECT latest.at FROM egret.view_refresh AS latest WHERE latest.view = old.view
                ORDER BY latest.at DESC OFFSET greatest($2::bigint - 1, 0) LIMIT 1)
