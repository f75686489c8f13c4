-- Functions that planning and reading relations $1 may call, beside those that a query names: those of indexes, constraints,
-- statistics and computed columns, also of partitions. Only those of roles that are not trusted.
WITH member AS (
    SELECT oid FROM pg_catalog.unnest($1::oid[]) AS asked (oid)
    UNION
    SELECT tree.relid::oid FROM pg_catalog.unnest($1::oid[]) AS asked (oid)
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(asked.oid) AS tree
), part (class, object, relation) AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid, oid, oid FROM member
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass::oid, indexrelid, indrelid FROM pg_catalog.pg_index WHERE indrelid IN (SELECT oid FROM member)
    UNION ALL
    SELECT 'pg_catalog.pg_constraint'::regclass::oid, oid, conrelid FROM pg_catalog.pg_constraint WHERE conrelid IN (SELECT oid FROM member)
    UNION ALL
    SELECT 'pg_catalog.pg_statistic_ext'::regclass::oid, oid, stxrelid FROM pg_catalog.pg_statistic_ext WHERE stxrelid IN (SELECT oid FROM member)
    UNION ALL
    SELECT 'pg_catalog.pg_attrdef'::regclass::oid, definition.oid, definition.adrelid
    FROM pg_catalog.pg_attrdef AS definition
    JOIN pg_catalog.pg_attribute AS computed ON computed.attrelid = definition.adrelid AND computed.attnum = definition.adnum
    WHERE definition.adrelid IN (SELECT oid FROM member) AND computed.attgenerated = 'v'
)
SELECT part.relation::regclass::text AS relation, namespace.nspname::text AS schema, function.proname::text AS name
FROM part
JOIN pg_catalog.pg_depend AS depend
    ON depend.classid = part.class AND depend.objid = part.object
    AND depend.refclassid = 'pg_catalog.pg_proc'::regclass
JOIN pg_catalog.pg_proc AS function ON function.oid = depend.refobjid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = function.pronamespace
JOIN pg_catalog.pg_roles AS owner ON owner.oid = function.proowner
WHERE NOT (namespace.nspname = 'pg_catalog' OR owner.rolsuper OR owner.rolname = current_user)
ORDER BY 1, 2, 3
LIMIT 1
