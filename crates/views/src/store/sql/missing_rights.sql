-- Statements that give role $1 what it lacks to read relations $2: use of every schema of users', in which names are looked for, and
-- of temporary views. `relation` is what SELECT is lacking on; null of the others. What is the system's or Egret's is not given.
SELECT pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', nspname, $1::text) AS statement, NULL::text AS relation
FROM pg_catalog.pg_namespace
WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'egret')
  AND NOT pg_catalog.has_schema_privilege($1::text::name, oid, 'USAGE')
UNION ALL
SELECT pg_catalog.format('GRANT TEMPORARY ON DATABASE %I TO %I', datname, $1::text), NULL
FROM pg_catalog.pg_database
WHERE datname = pg_catalog.current_database() AND NOT pg_catalog.has_database_privilege($1::text::name, oid, 'TEMPORARY')
UNION ALL
SELECT pg_catalog.format('GRANT SELECT ON %I.%I TO %I', namespace.nspname, class.relname, $1::text),
    pg_catalog.format('%I.%I', namespace.nspname, class.relname)
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE class.oid = ANY ($2::oid[]) AND namespace.nspname !~ '^pg_' AND namespace.nspname NOT IN ('information_schema', 'egret')
  AND NOT pg_catalog.has_table_privilege($1::text::name, class.oid, 'SELECT')
