-- How views $1 stand (see standing.sql, which takes longer), and which versions the rows have that the catalogue and Egret
-- keep of tables and partitions $2 and plain views $3: where these are what they were, so are `stamp` and `signature`.
SELECT kept.id, kept.state, pg_catalog.pg_current_snapshot()::text AS seen,
       kept.snapshot::text AS snapshot, coalesce(kept.stamp, '') AS stamp,
       pg_catalog.to_char(kept.clock AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS clock,
       pg_catalog.md5(pg_catalog.concat_ws(' ', kept.tableoid, kept.inlined,
           kept.definition, kept.shape, kept.settings, kept.mode, kept.owner,
           kept.changes_kept_ms IS NOT NULL, egret.view_dependency_versions(kept.depends_on))) AS identity,
       (SELECT pg_catalog.md5(pg_catalog.string_agg(version, ' '))
        FROM (
            SELECT 'c' || xmin::text FROM pg_catalog.pg_class WHERE oid = ANY ($2::oid[])
            UNION ALL
            SELECT 'a' || xmin::text FROM pg_catalog.pg_attribute WHERE attrelid = ANY ($2::oid[]) AND attnum > 0
            UNION ALL
            SELECT 'd' || xmin::text FROM pg_catalog.pg_attrdef WHERE adrelid = ANY ($2::oid[])
            UNION ALL
            SELECT 't' || xmin::text FROM pg_catalog.pg_trigger WHERE tgrelid = ANY ($2::oid[])
            UNION ALL
            SELECT 'p' || xmin::text FROM pg_catalog.pg_inherits WHERE inhparent = ANY ($2::oid[])
            UNION ALL
            SELECT 'i' || xmin::text FROM pg_catalog.pg_inherits WHERE inhrelid = ANY ($2::oid[])
            UNION ALL
            SELECT 's' || xmin::text FROM pg_catalog.pg_subscription_rel WHERE srrelid = ANY ($2::oid[])
            UNION ALL
            SELECT 'r' || xmin::text FROM pg_catalog.pg_rewrite WHERE ev_class = ANY ($3::oid[])
            UNION ALL
            SELECT 'v' || xmin::text FROM egret.view_table WHERE view = ANY ($1::bigint[])
            UNION ALL
            SELECT 'l' || timeline_id FROM pg_catalog.pg_control_checkpoint()
        ) AS every (version)) AS versions
FROM egret.view AS kept
WHERE kept.id = ANY ($1::bigint[])
