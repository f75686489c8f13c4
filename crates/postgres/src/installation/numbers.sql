-- The numbers of views and captures by the names of what is there, $1 as in objects.sql; of views that users read none are known.
WITH named (name) AS (
    SELECT relname::text FROM pg_catalog.pg_class
    WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
    UNION
    SELECT proname::text FROM pg_catalog.pg_proc
    WHERE pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
), part (stem, number) AS (
    SELECT found.groups[1], (found.groups[2])::bigint
    FROM named
    CROSS JOIN LATERAL pg_catalog.regexp_match(named.name, $1::text) AS found (groups)
    WHERE pg_catalog.length(found.groups[2]) <= 18
)
SELECT ARRAY(SELECT DISTINCT number FROM part WHERE stem NOT IN ('changes', 'capture')),
       ARRAY(SELECT DISTINCT number FROM part WHERE stem IN ('changes', 'capture')),
       ARRAY[]::oid[]
