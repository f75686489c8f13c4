-- Forgets change sets whose time is over, unless tasks are yet to be made of them, and of each view the oldest beyond $1 bytes. A row takes
-- about 64 bytes beside what is in it. The last is kept: it says where the view is.
DELETE FROM egret.view_change_set AS forgotten
USING (
    SELECT kept.view, kept.sequence, kept.at, handed.sequence AS handed_over, read.changes_kept_ms, read.sequence AS last,
           sum(kept.size_bytes + 64 * (1 + kept.changes)) OVER (PARTITION BY kept.view ORDER BY kept.sequence DESC) AS bytes
    FROM egret.view_change_set AS kept
    JOIN egret.view AS read ON read.id = kept.view
    LEFT JOIN egret.view_handed_over AS handed ON handed.view = kept.view
) AS every
WHERE forgotten.view = every.view AND forgotten.sequence = every.sequence AND every.sequence < every.last
  AND (every.bytes > $1::bigint
       OR every.at < pg_catalog.clock_timestamp() - every.changes_kept_ms * interval '1 millisecond'
          AND every.sequence <= coalesce(every.handed_over, every.sequence))
