-- The change set of view $1 that comes after number $2, if there is one, with the number of the first that is kept and of the last.
SELECT kept.sequence AS last, kept.changes_kept_ms IS NOT NULL AS is_kept,
       (SELECT min(every.sequence) FROM egret.view_change_set AS every WHERE every.view = kept.id) AS first,
       next.sequence, (extract(epoch FROM next.at) * 1000)::bigint AS at_ms, next.snapshot, next.reset, next.changes
FROM egret.view AS kept
LEFT JOIN LATERAL (
    SELECT * FROM egret.view_change_set AS every
    WHERE every.view = kept.id AND every.sequence > $2
    ORDER BY every.sequence
    LIMIT 1
) AS next ON true
WHERE kept.id = $1
