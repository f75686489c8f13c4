-- Which of operators $1 are not PostgreSQL's own, and which of types $2 have an equality that is not.
SELECT operator.oid, true AS is_operator
FROM pg_catalog.pg_operator AS operator
WHERE operator.oid = ANY ($1::oid[]) AND operator.oprnamespace <> 'pg_catalog'::regnamespace
UNION
SELECT type.oid, false
FROM pg_catalog.pg_type AS type
JOIN pg_catalog.pg_opclass AS class
    ON class.opcintype = coalesce(nullif(type.typbasetype, 0), type.oid) AND class.opcdefault
JOIN pg_catalog.pg_am AS method ON method.oid = class.opcmethod
JOIN pg_catalog.pg_amop AS member
    ON member.amopfamily = class.opcfamily AND member.amoplefttype = class.opcintype AND member.amoprighttype = class.opcintype
    AND (method.amname, member.amopstrategy) IN (('btree', 3), ('hash', 1))
JOIN pg_catalog.pg_operator AS operator
    ON operator.oid = member.amopopr AND operator.oprnamespace <> 'pg_catalog'::regnamespace
WHERE type.oid = ANY ($2::oid[])
