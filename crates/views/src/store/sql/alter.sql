-- Changes view $1: its mode to $2 and, if $3, its schedule to $4; if $5 is given, whether it is kept fresh.
UPDATE egret.view
SET mode = coalesce($2, mode),
    schedule = CASE WHEN $3 THEN $4 ELSE schedule END,
    state = CASE WHEN $5 AND state = 'suspended' THEN 'new' WHEN NOT $5 THEN 'suspended' ELSE state END,
    reason = CASE WHEN $5 THEN NULL WHEN NOT $5 THEN 'by request' ELSE reason END,
    failures = CASE WHEN $5 THEN 0 ELSE failures END,
    snapshot = CASE WHEN NOT $5 THEN NULL ELSE snapshot END
WHERE id = $1
