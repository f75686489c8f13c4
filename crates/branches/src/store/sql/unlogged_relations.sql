-- Tables, and sequences that belong to none. What Egret keeps unlogged it does without in a copy.
SELECT pg_catalog.format('%I.%I.%I', pg_catalog.current_database(), nspname, relname) AS name,
       pg_catalog.count(*) OVER () AS total
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = relnamespace
WHERE relpersistence = 'u' AND relkind IN ('r', 'S') AND nspname <> 'egret'
  AND pg_catalog.pg_relation_filenode(c.oid) = ANY ($1)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend
                  WHERE classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND objid = c.oid
                    AND refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
                    AND deptype IN ('a', 'i') AND relkind = 'S')
ORDER BY 1
LIMIT $2
