-- The tables and views that a view reads, directly or through other views: $1 the view.
WITH RECURSIVE read (relation) AS (
    SELECT $1::oid
    UNION
    SELECT depend.refobjid
    FROM read
    JOIN pg_catalog.pg_rewrite AS rule ON rule.ev_class = read.relation
    JOIN pg_catalog.pg_depend AS depend
        ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
        AND depend.refclassid = 'pg_catalog.pg_class'::regclass
)
SELECT class.oid, namespace.nspname AS schema, class.relname AS name, class.relkind::text AS kind,
       class.relispartition AS is_partition, class.relpersistence::text AS persistence,
       class.relrowsecurity AS has_row_security,
       EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhparent = class.oid OR inhrelid = class.oid) AS inherits,
       CASE WHEN class.relkind = 'v' THEN pg_catalog.pg_get_viewdef(class.oid) END AS definition
FROM read
JOIN pg_catalog.pg_class AS class ON class.oid = read.relation
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.oid <> $1::oid
ORDER BY class.oid
