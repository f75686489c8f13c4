-- All views, or the one with number $1, or those called $3 in schema $2, with what they read.
WITH here AS MATERIALIZED (SELECT egret.view_place() AS place)
SELECT kept.id, kept.schema::text, kept.name::text, kept.query, kept.definition, kept.settings, kept.owner::text,
       kept.owner <> current_user AS is_of_another, kept.mode, kept.schedule, kept.indexes, kept.shape, kept.state, kept.reason, kept.failures,
       -- Of one that is being computed anew, or is of another place, it says nothing.
       CASE WHEN kept.stamp LIKE here.place || ';%' THEN kept.snapshot::text END AS snapshot, (extract(epoch FROM kept.fresh_at) * 1000)::bigint AS fresh_at_ms,
       kept.clock IS NOT NULL AS has_clock, kept.changes_kept_ms, kept.sequence, kept.queue,
       ARRAY(SELECT read.name FROM egret.view_table AS read WHERE read.view = kept.id ORDER BY read.place) AS read_names,
       ARRAY(SELECT read.reads FROM egret.view_table AS read WHERE read.view = kept.id ORDER BY read.place) AS read_views
FROM here
CROSS JOIN egret.view AS kept
WHERE ($1::bigint IS NULL OR kept.id = $1) AND ($2::text IS NULL OR kept.schema = $2::name AND kept.name = $3::text::name)
ORDER BY kept.id
