-- What depends on something that Egret has made, and is none of it: its description, what it depends on, and the statement that drops
-- it where it is a trigger or a rule. $1 to $5 as in objects.sql, $6 the views in other schemas, $7 the event trigger.
WITH RECURSIVE own (class, object) AS (
    SELECT depend.classid, depend.objid
    FROM pg_catalog.pg_depend AS depend
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(depend.classid, depend.objid, 0) AS told
    LEFT JOIN pg_catalog.pg_proc AS routine
        ON depend.classid = 'pg_catalog.pg_proc'::regclass AND routine.oid = depend.objid
    CROSS JOIN LATERAL (SELECT coalesce(routine.proname::text, told.name) AS name) AS named
    LEFT JOIN LATERAL pg_catalog.regexp_match(named.name, $3) AS part (groups) ON true
    WHERE depend.refclassid = 'pg_catalog.pg_namespace'::regclass AND depend.deptype = 'n'
      AND depend.refobjid = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
      AND told.type IN ('table', 'view', 'function', 'aggregate')
      AND (named.name ~ CASE WHEN routine.oid IS NULL THEN $1 ELSE $2 END
           OR (part.groups[2])::bigint
              = ANY (CASE WHEN part.groups[1] IN ('changes', 'capture') THEN $5::bigint[] ELSE $4::bigint[] END))
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass::oid, oid FROM pg_catalog.unnest($6::oid[]) AS kept (oid)
), part (class, object) AS (
    -- With whatever goes with it silently: row types, indexes, constraints, defaults.
    SELECT class, object FROM own
    UNION
    SELECT depend.classid, depend.objid
    FROM part
    JOIN pg_catalog.pg_depend AS depend ON depend.refclassid = part.class AND depend.refobjid = part.object
    -- Those go silently as well, and are users'.
    LEFT JOIN pg_catalog.pg_trigger AS fired
        ON depend.classid = 'pg_catalog.pg_trigger'::regclass AND fired.oid = depend.objid
    LEFT JOIN pg_catalog.pg_rewrite AS rule
        ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND rule.oid = depend.objid
    WHERE depend.deptype IN ('a', 'i', 'P', 'S')
      AND (fired.oid IS NULL OR fired.tgisinternal
           OR fired.tgname ~ '^egret_((before_)?(insert|update|delete|truncate)_[0-9]+|refuse_write(_row)?)$')
      AND coalesce(rule.rulename = '_RETURN', true)
)
SELECT DISTINCT
       CASE WHEN rule.rulename = '_RETURN'
            THEN pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, rule.ev_class, 0)
            ELSE pg_catalog.pg_describe_object(depend.classid, depend.objid, depend.objsubid) END,
       pg_catalog.pg_describe_object(depend.refclassid, depend.refobjid, 0),
       CASE WHEN fired.oid IS NOT NULL
            THEN pg_catalog.format('DROP TRIGGER %I ON %s', fired.tgname, fired.tgrelid::pg_catalog.regclass)
            WHEN rule.rulename <> '_RETURN'
            THEN pg_catalog.format('DROP RULE %I ON %s', rule.rulename, rule.ev_class::pg_catalog.regclass) END
FROM part
JOIN pg_catalog.pg_depend AS depend
    ON depend.refclassid = part.class AND depend.refobjid = part.object
       AND (depend.deptype = 'n'
            OR depend.deptype = 'a' AND depend.classid IN ('pg_catalog.pg_trigger'::regclass, 'pg_catalog.pg_rewrite'::regclass))
LEFT JOIN pg_catalog.pg_rewrite AS rule
    ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND rule.oid = depend.objid
LEFT JOIN pg_catalog.pg_trigger AS fired
    ON depend.classid = 'pg_catalog.pg_trigger'::regclass AND fired.oid = depend.objid
LEFT JOIN pg_catalog.pg_event_trigger AS guard
    ON depend.classid = 'pg_catalog.pg_event_trigger'::regclass AND guard.oid = depend.objid
WHERE NOT EXISTS (SELECT FROM part AS other WHERE other.class = depend.classid AND other.object = depend.objid)
  AND NOT EXISTS (SELECT FROM own AS other
                  WHERE other.class = 'pg_catalog.pg_class'::regclass AND other.object = rule.ev_class
                    AND rule.rulename = '_RETURN')
  AND guard.evtname IS DISTINCT FROM $7::text::name
  AND coalesce(NOT fired.tgisinternal, true)
  AND coalesce(fired.tgname !~ '^egret_((before_)?(insert|update|delete|truncate)_[0-9]+|refuse_write(_row)?)$', true)
ORDER BY 1, 2
