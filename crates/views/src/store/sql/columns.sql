-- The columns of relations $1 with what is known of their types.
WITH RECURSIVE made_of (type, base) AS (
    -- What domains are made of, which may be domains.
    SELECT DISTINCT atttypid, atttypid FROM pg_catalog.pg_attribute WHERE attrelid = ANY ($1::oid[]) AND atttypid <> 0
    UNION
    SELECT made_of.type, domain.typbasetype
    FROM made_of
    JOIN pg_catalog.pg_type AS domain ON domain.oid = made_of.base AND domain.typbasetype <> 0
)
SELECT attribute.attrelid AS relation, attribute.attname AS name, attribute.attnum AS number,
       pg_catalog.format_type(attribute.atttypid, attribute.atttypmod) AS type,
       pg_catalog.format_type(attribute.atttypid, -1) AS base_type,
       pg_catalog.format_type(base.oid, -1) AS recorded_type,
       attribute.atttypid AS type_oid,
       -- There may be nulls from before as long as the constraint is NOT VALID.
       attribute.attnotnull AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_constraint AS declared
           WHERE declared.conrelid = attribute.attrelid AND declared.contype = 'n' AND NOT declared.convalidated
             AND declared.conkey = ARRAY[attribute.attnum]) AS is_not_null,
       -- What a column is that is computed when it is read.
       CASE WHEN attribute.attgenerated = 'v' THEN pg_catalog.pg_get_expr(definition.adbin, definition.adrelid) END AS computed,
       CASE WHEN attribute.attcollation NOT IN (0, type.typcollation) THEN named.written END AS collation,
       CASE WHEN attribute.attcollation NOT IN (0, base.typcollation) THEN named.written END AS recorded_collation,
       coalesce(used_collation.collisdeterministic, true) AS is_deterministic,
       equal.operator AS equality, equal.has_hash,
       -- Of the types whose values look the same when they are equal.
       CASE WHEN base.typtype IN ('e') THEN true
            -- As long, or with as many digits, as is said.
            WHEN attribute.atttypid = ANY (ARRAY['character', 'numeric']::pg_catalog.regtype[]::oid[]) THEN attribute.atttypmod > 4
            ELSE base.oid = ANY (ARRAY[
                'boolean', 'smallint', 'integer', 'bigint', 'text', 'character varying', '"char"', 'name', 'uuid', 'date',
                'timestamp', 'timestamp with time zone', 'time', 'bytea', 'oid', 'integer[]', 'bigint[]', 'text[]', 'uuid[]',
                'xid8']::pg_catalog.regtype[]::oid[])
       END AS is_exact
FROM pg_catalog.pg_attribute AS attribute
JOIN pg_catalog.pg_type AS type ON type.oid = attribute.atttypid
LEFT JOIN pg_catalog.pg_attrdef AS definition
    ON definition.adrelid = attribute.attrelid AND definition.adnum = attribute.attnum
JOIN made_of ON made_of.type = attribute.atttypid
JOIN pg_catalog.pg_type AS base ON base.oid = made_of.base AND base.typtype <> 'd'
LEFT JOIN pg_catalog.pg_collation AS used_collation ON used_collation.oid = attribute.attcollation
LEFT JOIN pg_catalog.pg_namespace AS collation_namespace ON collation_namespace.oid = used_collation.collnamespace
CROSS JOIN LATERAL (
    SELECT pg_catalog.quote_ident(collation_namespace.nspname) || '.' || pg_catalog.quote_ident(used_collation.collname) AS written
) AS named
LEFT JOIN LATERAL (
    -- The operator by which values are grouped: the equality of the default btree or hash class.
    SELECT 'OPERATOR(' || pg_catalog.quote_ident(operator_namespace.nspname) || '.' || operator.oprname || ')' AS operator,
           operator.oprcanhash AND (part.oid IS NULL OR EXISTS (
               -- Arrays and ranges are hashed by their elements.
               SELECT FROM pg_catalog.pg_opclass AS of_part
               JOIN pg_catalog.pg_am AS of_hash ON of_hash.oid = of_part.opcmethod AND of_hash.amname = 'hash'
               WHERE of_part.opcdefault
                 AND (of_part.opcintype = part.oid
                      OR of_part.opcintype = 'text'::regtype AND part.oid = 'character varying'::regtype
                      OR of_part.opcintype = 'anyenum'::regtype AND part.typtype = 'e'))) AND base.typtype <> 'c' AS has_hash
    FROM pg_catalog.pg_opclass AS class
    JOIN pg_catalog.pg_am AS method ON method.oid = class.opcmethod
    JOIN pg_catalog.pg_amop AS member
        ON member.amopfamily = class.opcfamily AND member.amoplefttype = class.opcintype AND member.amoprighttype = class.opcintype
        AND (method.amname, member.amopstrategy) IN (('btree', 3), ('hash', 1))
    JOIN pg_catalog.pg_operator AS operator ON operator.oid = member.amopopr
    JOIN pg_catalog.pg_namespace AS operator_namespace ON operator_namespace.oid = operator.oprnamespace
    LEFT JOIN pg_catalog.pg_range AS range ON base.oid IN (range.rngtypid, range.rngmultitypid)
    LEFT JOIN pg_catalog.pg_type AS part
        ON part.oid = CASE base.typcategory WHEN 'A' THEN base.typelem ELSE range.rngsubtype END
    WHERE class.opcdefault
      AND (class.opcintype = base.oid
           OR class.opcintype = 'text'::regtype AND base.oid = 'character varying'::regtype
           OR class.opcintype = 'anyenum'::regtype AND base.typtype = 'e'
           OR class.opcintype = 'anyarray'::regtype AND base.typcategory = 'A'
           OR class.opcintype = 'anyrange'::regtype AND base.typtype = 'r'
           OR class.opcintype = 'anymultirange'::regtype AND base.typtype = 'm'
           OR class.opcintype = 'record'::regtype AND base.typtype = 'c')
    ORDER BY method.amname, class.opcintype = base.oid DESC
    LIMIT 1
) AS equal ON true
WHERE attribute.attrelid = ANY ($1::oid[]) AND attribute.attnum > 0 AND NOT attribute.attisdropped
ORDER BY attribute.attrelid, attribute.attnum
