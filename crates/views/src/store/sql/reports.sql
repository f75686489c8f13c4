-- What is known of views $1 beside what is remembered of each.
SELECT kept.id AS view, egret.waiting_changes(kept.id) AS waiting,
       egret.changes_lost(kept.stamp) OR kept.mode = 'immediate' AND NOT egret.view_is_live(kept.id) AS has_lost, storage.size_bytes,
       told.change_sets, told.change_set_bytes, told.waiting_tasks,
       took.waited, took.applied, took.other, took.total,
       (extract(epoch FROM latest.at) * 1000)::bigint AS at_ms, latest.outcome, latest.why, latest.snapshot, latest.changes,
       latest.added, latest.changed, latest.removed, latest.took_ms, latest.waited_ms, latest.applied_ms, latest.error,
       -- They may be long, and are told with the history.
       NULL AS plans
FROM egret.view AS kept
CROSS JOIN LATERAL (
    SELECT coalesce(sum(pg_catalog.pg_total_relation_size(class.oid)), 0)::bigint AS size_bytes
    FROM pg_catalog.pg_class AS class
    WHERE class.relnamespace = 'egret'::regnamespace AND class.relkind = 'r' AND class.relname LIKE 'view\_' || kept.id || '\_%'
) AS storage
CROSS JOIN LATERAL (
    -- Median and 95th percentile of each.
    SELECT pg_catalog.percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY done.waited_ms) AS waited,
           pg_catalog.percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY done.applied_ms) AS applied,
           pg_catalog.percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY greatest(done.took_ms - done.waited_ms - done.applied_ms, 0)) AS other,
           pg_catalog.percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY done.took_ms) AS total
    FROM egret.view_refresh AS done
    WHERE done.view = kept.id AND done.outcome <> 'failed'
) AS took
CROSS JOIN LATERAL (
    SELECT count(*) AS change_sets, coalesce(sum(every.size_bytes), 0)::bigint AS change_set_bytes,
           count(*) FILTER (WHERE every.sequence > handed.sequence) AS waiting_tasks
    FROM egret.view_change_set AS every
    LEFT JOIN egret.view_handed_over AS handed ON handed.view = every.view
    WHERE every.view = kept.id
) AS told
LEFT JOIN LATERAL (
    SELECT * FROM egret.view_refresh AS done WHERE done.view = kept.id ORDER BY done.at DESC LIMIT 1
) AS latest ON true
WHERE kept.id = ANY ($1::bigint[])
