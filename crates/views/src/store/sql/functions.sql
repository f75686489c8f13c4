-- The functions that the rules of relations $1 call, with what kind they are and what they promise. A value of a domain is
-- checked by what its constraints call: it stands here as one function, which is trusted if
-- the owners of the domain and of what it calls are.
WITH RECURSIVE called AS (
    SELECT DISTINCT (found.groups)[2]::oid AS function, (found.groups)[1] = 'aggfnoid' AS is_aggregate
    FROM pg_catalog.pg_rewrite AS rule
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        rule.ev_action::text, ':(aggfnoid|winfnoid|funcid|opfuncid|hashfuncid|negfuncid) ([1-9][0-9]*)', 'g') AS found (groups)
    WHERE rule.ev_class = ANY ($1::oid[])
), made_of (type) AS (
    -- The types that values are cast to, and those of columns, with all that they consist of.
    SELECT (found.groups)[1]::oid
    FROM pg_catalog.pg_rewrite AS rule
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        rule.ev_action::text, ':(?:resulttype|consttype) ([1-9][0-9]*)', 'g') AS found (groups)
    WHERE rule.ev_class = ANY ($1::oid[])
    UNION
    SELECT atttypid FROM pg_catalog.pg_attribute WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped
    UNION
    SELECT part.type
    FROM made_of
    JOIN pg_catalog.pg_type AS type ON type.oid = made_of.type
    LEFT JOIN pg_catalog.pg_range AS range ON range.rngtypid = type.oid OR range.rngmultitypid = type.oid
    LEFT JOIN pg_catalog.pg_attribute AS field ON type.typrelid <> 0 AND field.attrelid = type.typrelid
        AND field.attnum > 0 AND NOT field.attisdropped
    CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[type.typelem, type.typbasetype, range.rngsubtype, field.atttypid]) AS part (type)
    WHERE part.type <> 0
), all_called AS (
    SELECT * FROM called
    UNION
    -- An aggregate of a user is declared to promise everything, and does what these do.
    SELECT part.function, false
    FROM called
    JOIN pg_catalog.pg_proc AS function ON function.oid = called.function
    JOIN pg_catalog.pg_aggregate AS aggregate ON aggregate.aggfnoid = called.function
    CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[
        aggregate.aggtransfn, aggregate.aggfinalfn, aggregate.aggcombinefn, aggregate.aggserialfn, aggregate.aggdeserialfn,
        aggregate.aggmtransfn, aggregate.aggminvtransfn, aggregate.aggmfinalfn]::oid[]) AS part (function)
    WHERE function.pronamespace <> 'pg_catalog'::regnamespace AND part.function <> 0
)
SELECT namespace.nspname AS schema, function.proname AS name, all_called.is_aggregate,
       function.provolatile::text AS volatility,
       -- Whether it gives several values of one column.
       function.proretset AND result.typtype NOT IN ('c', 'p') OR function.proretset AND result.typname LIKE 'any%' AS is_set,
       function.proretset AS gives_rows,
       -- Whether it does nothing that another role than its caller has thought of.
       namespace.nspname = 'pg_catalog' OR owner.rolsuper OR owner.rolname = current_user AS is_trusted
FROM all_called
JOIN pg_catalog.pg_proc AS function ON function.oid = all_called.function
JOIN pg_catalog.pg_type AS result ON result.oid = function.prorettype
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = function.pronamespace
JOIN pg_catalog.pg_roles AS owner ON owner.oid = function.proowner
UNION ALL
SELECT namespace.nspname, domain.typname, false, 'i', false, false,
       (owner.rolsuper OR owner.rolname = current_user) AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_constraint AS checked
           JOIN pg_catalog.pg_depend AS depend
               ON depend.classid = 'pg_catalog.pg_constraint'::regclass AND depend.objid = checked.oid
               AND depend.refclassid = 'pg_catalog.pg_proc'::regclass
           JOIN pg_catalog.pg_proc AS function ON function.oid = depend.refobjid
           JOIN pg_catalog.pg_roles AS maker ON maker.oid = function.proowner
           WHERE checked.contypid = domain.oid AND NOT maker.rolsuper AND maker.rolname <> current_user)
FROM made_of
JOIN pg_catalog.pg_type AS domain ON domain.oid = made_of.type AND domain.typtype = 'd'
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = domain.typnamespace
JOIN pg_catalog.pg_roles AS owner ON owner.oid = domain.typowner
WHERE namespace.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1, 2
