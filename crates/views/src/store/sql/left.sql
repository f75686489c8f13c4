-- The tables with a trigger that calls function $2 which are not part of table $1 any more.
SELECT DISTINCT namespace.nspname AS schema, class.relname AS name
FROM pg_catalog.pg_trigger AS trigger
JOIN pg_catalog.pg_class AS class ON class.oid = trigger.tgrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE trigger.tgfoid = pg_catalog.to_regprocedure($2) AND trigger.tgrelid <> $1::oid
  AND trigger.tgrelid NOT IN (SELECT tree.relid::oid FROM pg_catalog.pg_partition_tree($1::oid) AS tree)
