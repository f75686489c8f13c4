-- The latest $2 refreshes of view $1.
SELECT (extract(epoch FROM at) * 1000)::bigint AS at_ms, outcome, why, snapshot, changes, added, changed, removed,
       took_ms, waited_ms, applied_ms, error, plans
FROM egret.view_refresh
WHERE view = $1
ORDER BY at DESC
LIMIT $2
