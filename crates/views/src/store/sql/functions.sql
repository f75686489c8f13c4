-- The functions that the rules of relations $1 call, with what kind they are and what they promise. A cast to a domain calls
-- what its constraints call: it stands here as one function.
WITH called AS (
    SELECT DISTINCT (found.groups)[2]::oid AS function, (found.groups)[1] = 'aggfnoid' AS is_aggregate
    FROM pg_catalog.pg_rewrite AS rule
    CROSS JOIN LATERAL pg_catalog.regexp_matches(
        rule.ev_action::text, ':(aggfnoid|winfnoid|funcid|opfuncid|hashfuncid|negfuncid) ([1-9][0-9]*)', 'g') AS found (groups)
    WHERE rule.ev_class = ANY ($1::oid[])
), all_called AS (
    SELECT * FROM called
    UNION
    -- An aggregate of a user is declared to promise everything, and does what these do.
    SELECT part.function, false
    FROM called
    JOIN pg_catalog.pg_proc AS function ON function.oid = called.function
    JOIN pg_catalog.pg_aggregate AS aggregate ON aggregate.aggfnoid = called.function
    CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[aggregate.aggtransfn, aggregate.aggfinalfn]::oid[]) AS part (function)
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
SELECT DISTINCT 'pg_catalog', 'a cast to a domain', false, 'i', false, false, false
FROM pg_catalog.pg_rewrite AS rule
WHERE rule.ev_class = ANY ($1::oid[]) AND rule.ev_action::text LIKE '%{COERCETODOMAIN %'
ORDER BY 1, 2
