-- The columns of relations $1 with what is known of their types.
SELECT attribute.attrelid AS relation, attribute.attname AS name,
       pg_catalog.format_type(attribute.atttypid, attribute.atttypmod) AS type,
       pg_catalog.format_type(attribute.atttypid, NULL) AS base_type,
       attribute.atttypid AS type_oid,
       attribute.attnotnull AS is_not_null,
       CASE WHEN attribute.attcollation NOT IN (0, type.typcollation)
            THEN pg_catalog.quote_ident(collation_namespace.nspname) || '.' || pg_catalog.quote_ident(used_collation.collname) END AS collation,
       coalesce(used_collation.collisdeterministic, true) AS is_deterministic,
       equal.operator AS equality, equal.has_hash,
       -- Of the types whose values look the same when they are equal.
       CASE WHEN type.typtype IN ('e') THEN true
            ELSE coalesce(nullif(type.typbasetype, 0), attribute.atttypid) = ANY (ARRAY[
                'boolean', 'smallint', 'integer', 'bigint', 'text', 'character varying', '"char"', 'name', 'uuid', 'date',
                'timestamp', 'timestamp with time zone', 'time', 'bytea', 'oid', 'integer[]', 'bigint[]', 'text[]', 'uuid[]',
                'xid8']::pg_catalog.regtype[]::oid[])
       END AS is_exact
FROM pg_catalog.pg_attribute AS attribute
JOIN pg_catalog.pg_type AS type ON type.oid = attribute.atttypid
LEFT JOIN pg_catalog.pg_collation AS used_collation ON used_collation.oid = attribute.attcollation
LEFT JOIN pg_catalog.pg_namespace AS collation_namespace ON collation_namespace.oid = used_collation.collnamespace
LEFT JOIN LATERAL (
    -- The operator by which values are grouped: the equality of the default btree or hash class.
    SELECT 'OPERATOR(' || pg_catalog.quote_ident(operator_namespace.nspname) || '.' || operator.oprname || ')' AS operator,
           operator.oprcanhash AS has_hash
    FROM pg_catalog.pg_opclass AS class
    JOIN pg_catalog.pg_am AS method ON method.oid = class.opcmethod
    JOIN pg_catalog.pg_amop AS member
        ON member.amopfamily = class.opcfamily AND member.amoplefttype = class.opcintype AND member.amoprighttype = class.opcintype
        AND (method.amname, member.amopstrategy) IN (('btree', 3), ('hash', 1))
    JOIN pg_catalog.pg_operator AS operator ON operator.oid = member.amopopr
    JOIN pg_catalog.pg_namespace AS operator_namespace ON operator_namespace.oid = operator.oprnamespace
    CROSS JOIN LATERAL (SELECT coalesce(nullif(type.typbasetype, 0), type.oid) AS oid) AS base
    JOIN pg_catalog.pg_type AS base_type ON base_type.oid = base.oid
    WHERE class.opcdefault
      AND (class.opcintype = base.oid
           OR class.opcintype = 'text'::regtype AND base.oid = 'character varying'::regtype
           OR class.opcintype = 'anyenum'::regtype AND base_type.typtype = 'e'
           OR class.opcintype = 'anyarray'::regtype AND base_type.typcategory = 'A'
           OR class.opcintype = 'anyrange'::regtype AND base_type.typtype = 'r'
           OR class.opcintype = 'anymultirange'::regtype AND base_type.typtype = 'm'
           OR class.opcintype = 'record'::regtype AND base_type.typtype = 'c')
    ORDER BY method.amname, class.opcintype = base.oid DESC
    LIMIT 1
) AS equal ON true
WHERE attribute.attrelid = ANY ($1::oid[]) AND attribute.attnum > 0 AND NOT attribute.attisdropped
ORDER BY attribute.attrelid, attribute.attnum
