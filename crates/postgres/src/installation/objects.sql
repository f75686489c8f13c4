-- What is in schema egret, and whether Egret has made it: $1 relations and $2 functions by name, $3 those of views $4 and
-- captures $5. Parts of tables (indexes, sequences of columns) and of extensions are left out.
SELECT object.kind, object.identity,
       coalesce(object.name ~ CASE WHEN object.is_routine THEN $2 ELSE $1 END
           OR object.number = ANY (CASE WHEN object.stem IN ('changes', 'capture') THEN $5::bigint[] ELSE $4::bigint[] END),
           false) AND object.kind IN ('table', 'view', 'function', 'aggregate') AS is_own,
       pg_catalog.format(
           'ALTER %s %s SET SCHEMA public',
           CASE object.kind WHEN 'composite type' THEN 'TYPE' WHEN 'statistics object' THEN 'STATISTICS'
                ELSE pg_catalog.upper(object.kind) END,
           object.identity) AS command
FROM (
    SELECT found.kind, found.identity, found.name, found.is_routine,
           (pg_catalog.regexp_match(found.name, $3))[1] AS stem,
           ((pg_catalog.regexp_match(found.name, $3))[2])::bigint AS number
    FROM (
        SELECT told.type AS kind, told.identity, routine.oid IS NOT NULL AS is_routine,
               coalesce(routine.proname::text, told.name) AS name
        FROM pg_catalog.pg_depend AS depend
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(depend.classid, depend.objid, 0) AS told
        LEFT JOIN pg_catalog.pg_proc AS routine
            ON depend.classid = 'pg_catalog.pg_proc'::regclass AND routine.oid = depend.objid
        WHERE depend.refclassid = 'pg_catalog.pg_namespace'::regclass AND depend.deptype = 'n'
          AND depend.refobjid = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
          AND NOT EXISTS (
              SELECT FROM pg_catalog.pg_depend AS part
              WHERE part.classid = depend.classid AND part.objid = depend.objid
                AND (part.deptype = 'e'
                     OR part.deptype IN ('a', 'i') AND part.classid = 'pg_catalog.pg_class'::regclass
                        AND (SELECT relkind FROM pg_catalog.pg_class WHERE oid = part.objid) = 'S'))
    ) AS found
) AS object
ORDER BY object.identity
