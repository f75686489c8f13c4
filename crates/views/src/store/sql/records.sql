-- All views, or the one with number $1, with what they read.
SELECT kept.id, kept.schema::text, kept.name::text, kept.query, kept.definition, kept.settings, kept.owner::text,
       kept.owner <> current_user AS is_of_another, kept.mode, kept.schedule, kept.indexes, kept.shape, kept.state, kept.reason, kept.failures,
       kept.snapshot::text AS snapshot, (extract(epoch FROM kept.fresh_at) * 1000)::bigint AS fresh_at_ms,
       ARRAY(SELECT read.name FROM egret.view_table AS read WHERE read.view = kept.id ORDER BY read.place) AS read_names,
       ARRAY(SELECT read.reads FROM egret.view_table AS read WHERE read.view = kept.id ORDER BY read.place) AS read_views
FROM egret.view AS kept
WHERE $1::bigint IS NULL OR kept.id = $1
ORDER BY kept.id
