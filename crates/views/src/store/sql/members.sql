-- Table $1 and all of its partitions, on all levels: a trigger fires on the table that a statement names. Is each watched by
-- all triggers of function $2?
SELECT namespace.nspname AS schema, class.relname AS name,
       4 = (SELECT count(*) FROM pg_catalog.pg_trigger AS trigger
            WHERE trigger.tgrelid = class.oid AND trigger.tgfoid = pg_catalog.to_regprocedure($2) AND trigger.tgenabled = 'A') AS is_watched
FROM (
    SELECT $1::oid
    UNION
    SELECT tree.relid::oid FROM pg_catalog.pg_partition_tree($1::oid) AS tree
) AS member (oid)
JOIN pg_catalog.pg_class AS class ON class.oid = member.oid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
ORDER BY class.oid
