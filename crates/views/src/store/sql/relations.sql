-- The tables and views that a view reads, directly or through views that are not kept fresh: $1 the view. `named_by` are the
-- relations that its own query names and through which it reads this one.
WITH RECURSIVE read (relation, named) AS (
    SELECT $1::oid, NULL::oid
    UNION
    SELECT depend.refobjid, coalesce(read.named, depend.refobjid)
    FROM read
    JOIN pg_catalog.pg_rewrite AS rule ON rule.ev_class = read.relation
    JOIN pg_catalog.pg_depend AS depend
        ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
        AND depend.refclassid = 'pg_catalog.pg_class'::regclass AND depend.refobjid <> read.relation
    WHERE NOT EXISTS (
        SELECT FROM egret.view AS kept
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = kept.schema
        JOIN pg_catalog.pg_class AS class ON class.relnamespace = namespace.oid AND class.relname = kept.name
        WHERE class.oid = read.relation)
)
SELECT class.oid, namespace.nspname AS schema, class.relname AS name, class.relkind::text AS kind,
       class.relispartition AS is_partition, class.relpersistence::text AS persistence,
       class.relrowsecurity AS has_row_security,
       -- Whether no role but a superuser, this session's and that of views may put another query in its place.
       (SELECT owner.rolsuper OR owner.rolname IN (current_user, 'egret_views')
        FROM pg_catalog.pg_roles AS owner WHERE owner.oid = class.relowner) AS has_trusted_owner,
       EXISTS (SELECT FROM pg_catalog.pg_subscription_rel AS subscribed WHERE subscribed.srrelid = class.oid) AS is_subscribed,
       -- Of a table that was never analysed by the size of its file, as rows of 100 bytes.
       CASE WHEN class.reltuples >= 0 THEN class.reltuples::bigint
            WHEN class.relkind = 'r' THEN pg_catalog.pg_relation_size(class.oid) / 100
            ELSE 0
       END AS rows,
       EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = class.oid OR inhrelid = class.oid) AS inherits,
       CASE WHEN class.relkind = 'v' THEN pg_catalog.pg_get_viewdef(class.oid) END AS definition,
       CASE WHEN class.relkind = 'v' THEN
           (SELECT kept.id FROM egret.view AS kept WHERE kept.schema = namespace.nspname AND kept.name = class.relname)
       END AS kept,
       read.named_by
FROM (SELECT relation, pg_catalog.array_agg(named ORDER BY named) AS named_by FROM read GROUP BY relation) AS read
JOIN pg_catalog.pg_class AS class ON class.oid = read.relation
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
-- A query that takes a field of a row depends on the type of that row, which has no rows itself.
WHERE class.oid <> $1::oid AND class.relkind <> 'c'
ORDER BY class.oid
