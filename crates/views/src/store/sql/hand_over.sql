-- Statements that give view $1 to role egret_views: its tables, the changes that it reads, and the functions of its triggers.
WITH kept AS (
    SELECT id, schema, name, mode FROM egret.view WHERE id = $1
), relation AS (
    SELECT class.relname::text AS name, pg_catalog.regexp_match(class.relname::text,
               '^(view|told|edge|lock|changes)_([0-9]{1,18})(_[0-9]+|_second)?$') AS part
    FROM pg_catalog.pg_class AS class
    WHERE class.relnamespace = 'egret'::regnamespace AND class.relkind = 'r'
)
SELECT pg_catalog.format('GRANT SELECT, INSERT, UPDATE, DELETE ON egret.%I TO egret_views', relation.name) AS statement
FROM kept JOIN relation ON relation.part[2]::bigint = kept.id AND relation.part[1] IN ('view', 'told', 'edge', 'lock')
UNION ALL
SELECT pg_catalog.format('GRANT SELECT ON egret.%I TO egret_views', relation.name)
FROM kept
JOIN egret.view_table AS read ON read.view = kept.id
JOIN relation ON relation.part[2]::bigint = read.reads AND relation.part[1] IN ('view', 'told', 'edge')
UNION ALL
SELECT pg_catalog.format(
           'GRANT %s ON egret.%I TO egret_views',
           CASE kept.mode WHEN 'immediate' THEN 'SELECT, INSERT, DELETE' ELSE 'SELECT' END, relation.name)
FROM kept
JOIN egret.view_table AS read ON read.view = kept.id
JOIN relation ON relation.part[2]::bigint = read.capture AND relation.part[1] = 'changes'
UNION ALL
-- Of other modes they only record, and nothing of a query is in them.
SELECT pg_catalog.format('ALTER FUNCTION %s OWNER TO egret_views', routine.oid::regprocedure)
FROM kept
JOIN pg_catalog.pg_proc AS routine ON routine.pronamespace = 'egret'::regnamespace
WHERE kept.mode = 'immediate'
  AND (routine.proname = ANY (ARRAY['before_' || kept.id, 'catch_up_' || kept.id, 'fail_' || kept.id]::name[])
       OR routine.proname = ANY (ARRAY(
           SELECT 'capture_' || read.capture FROM egret.view_table AS read WHERE read.view = kept.id)::name[]))
UNION ALL
SELECT pg_catalog.format('ALTER VIEW %I.%I OWNER TO egret_views', kept.schema, kept.name)
FROM kept
WHERE pg_catalog.to_regclass(pg_catalog.format('%I.%I', kept.schema, kept.name)) IS NOT NULL
