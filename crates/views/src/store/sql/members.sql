-- Table $1 and all of its partitions, on all levels: a trigger fires on the table that a statement names. Is each watched by
-- all triggers, $3 of them, that call functions $2?
SELECT namespace.nspname AS schema, class.relname AS name,
       $3::bigint = (SELECT count(*) FROM pg_catalog.pg_trigger AS trigger
            WHERE trigger.tgrelid = class.oid
              AND (trigger.tgenabled = 'A' OR trigger.tgenabled = 'O' AND NOT may_alter)
              AND trigger.tgfoid IN (SELECT pg_catalog.to_regprocedure(name) FROM pg_catalog.unnest($2::text[]) AS name)) AS is_watched,
       may_alter
FROM (
    SELECT $1::oid
    UNION
    SELECT tree.relid::oid FROM pg_catalog.pg_partition_tree($1::oid) AS tree
) AS member (oid)
JOIN pg_catalog.pg_class AS class ON class.oid = member.oid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
-- To have triggers fire in every session takes the owner of the table.
CROSS JOIN LATERAL (SELECT pg_catalog.pg_has_role(class.relowner, 'USAGE') AS may_alter) AS owned
ORDER BY class.oid
