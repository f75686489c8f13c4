-- How views $1 stand, and the tables that they read, in database $2 (see server.sql).
--
-- `stamp` says whether rows of these may have changed without a trigger: it has the place, the timeline of the server and, where
-- changes are recorded in unlogged tables, what a crash takes with these (see egret.changes_lost), the partitions of all tables, the
-- files and the triggers of all of them, the plain views that are read, and the versions of what else the view depends on. (In mode immediate it is what egret.immediate_stamp says.)
-- `signature` says whether a view is what it was, and so
-- are the tables and views that it reads.
SELECT kept.id, kept.state, pg_catalog.pg_current_snapshot()::text AS seen,
       kept.snapshot::text AS snapshot, coalesce(kept.stamp, '') AS stamp,
       pg_catalog.to_char(kept.clock AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS clock,
       pg_catalog.split_part(kept.stamp, ';', 1) IS NOT DISTINCT FROM here.place AS is_here,
       CASE WHEN kept.mode = 'immediate' THEN pg_catalog.concat(here.place, ';', egret.immediate_stamp(kept.id))
            ELSE pg_catalog.concat(tables.stamp, ';', inlined.text, ';' || dependency_versions.text) END AS stamp_now,
       pg_catalog.concat_ws(';', tables.signature, inlined.text, below.text, dependency_versions.text,
           pg_catalog.md5(pg_catalog.concat_ws(' ', kept.definition, kept.shape, kept.settings, kept.mode, kept.owner,
               kept.changes_kept_ms IS NOT NULL))) AS signature,
       kept.inlined, tables.members AS tables
FROM egret.view AS kept
-- As egret.view_place() says it, which reads files.
CROSS JOIN LATERAL (SELECT pg_catalog.concat($2::text, '/', kept.tableoid) AS place) AS here
CROSS JOIN LATERAL (SELECT egret.view_dependency_versions(kept.depends_on) AS text) AS dependency_versions
CROSS JOIN LATERAL (
    SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(rule.ev_action::text, ',' ORDER BY rule.ev_class)), '') AS text
    FROM pg_catalog.pg_rewrite AS rule
    WHERE rule.ev_class = ANY (kept.inlined)
) AS inlined
CROSS JOIN LATERAL (
    SELECT coalesce(pg_catalog.md5(pg_catalog.string_agg(other.definition || other.shape, ',' ORDER BY other.id)), '') AS text
    FROM egret.view_table AS read
    JOIN egret.view AS other ON other.id = read.reads
    WHERE read.view = kept.id
) AS below
CROSS JOIN LATERAL (
    SELECT pg_catalog.format(
               '%s;%s%s;%s',
               here.place,
               (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()),
               CASE WHEN bool_or(member.is_unlogged) THEN '/' || egret.view_incarnation() END,
               pg_catalog.string_agg(
                   pg_catalog.format(
                       '%s:%s:%s', member.oid, coalesce(pg_catalog.pg_relation_filenode(member.oid), 0),
                       (SELECT count(*) FROM pg_catalog.pg_trigger AS trigger
                        WHERE trigger.tgrelid = member.oid
                          -- See members.sql.
                          AND (trigger.tgenabled = 'A' OR trigger.tgenabled = 'O' AND NOT pg_catalog.pg_has_role(
                              (SELECT class.relowner FROM pg_catalog.pg_class AS class WHERE class.oid = member.oid), 'USAGE'))
                          AND trigger.tgfoid = pg_catalog.to_regprocedure('egret.capture_' || member.capture || '()'))),
                   ',' ORDER BY member.oid)
           ) AS stamp,
           pg_catalog.array_agg(member.oid) AS members,
           coalesce(pg_catalog.string_agg(member.columns, ';' ORDER BY member.oid), '') AS signature
    FROM (
        SELECT capture.relation AS oid, capture.id AS capture, capture.is_unlogged,
               (SELECT pg_catalog.format(
                           '%s.%s/%s=%s', class.relnamespace, class.relname,
                           -- Whether it is a table of a kind whose changes are all seen.
                           pg_catalog.concat_ws(' ', class.relispartition, class.relrowsecurity, class.relpersistence,
                               EXISTS (SELECT FROM pg_catalog.pg_inherits
                                       WHERE class.relkind = 'r' AND (inhparent = class.oid OR inhrelid = class.oid)),
                               EXISTS (SELECT FROM pg_catalog.pg_subscription_rel AS subscribed WHERE subscribed.srrelid = class.oid),
                               (SELECT pg_catalog.string_agg(pg_catalog.pg_get_expr(definition.adbin, definition.adrelid), ',' ORDER BY definition.adnum)
                                FROM pg_catalog.pg_attrdef AS definition
                                JOIN pg_catalog.pg_attribute AS computed
                                    ON computed.attrelid = definition.adrelid AND computed.attnum = definition.adnum
                                WHERE definition.adrelid = class.oid AND computed.attgenerated = 'v')),
                           pg_catalog.md5(pg_catalog.string_agg(pg_catalog.format(
                               '%s %s %s %s %s %s', attribute.attnum, attribute.attname, attribute.atttypid, attribute.atttypmod, attribute.attnotnull,
                               attribute.attcollation), ',' ORDER BY attribute.attnum)))
                FROM pg_catalog.pg_class AS class
                LEFT JOIN pg_catalog.pg_attribute AS attribute
                    ON attribute.attrelid = class.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
                WHERE class.oid = capture.relation
                GROUP BY class.oid) AS columns
        FROM egret.view_table AS read
        JOIN egret.view_capture AS capture ON capture.id = read.capture
        WHERE read.view = kept.id
        GROUP BY capture.relation, capture.id
        UNION ALL
        SELECT tree.relid::oid, capture.id, false, NULL
        FROM egret.view_table AS read
        JOIN egret.view_capture AS capture ON capture.id = read.capture
        CROSS JOIN LATERAL pg_catalog.pg_partition_tree(capture.relation) AS tree
        WHERE read.view = kept.id AND tree.relid::oid <> capture.relation
    ) AS member
) AS tables
WHERE kept.id = ANY ($1::bigint[])
