-- What the rules of relations $1 depend on, directly or through others, that is not PostgreSQL's own: functions, operators, types and
-- collations. Casts, labels of enums and checks of domains belong to their types. A body of a function in text is not resolved by the
-- server: every function counts whose name is a word in it.
WITH RECURSIVE depends_on (class, oid) AS (
    SELECT depend.refclassid::oid, depend.refobjid
    FROM pg_catalog.pg_rewrite AS rule
    JOIN pg_catalog.pg_depend AS depend
        ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
    WHERE rule.ev_class = ANY ($1::oid[])
      AND depend.refclassid = ANY (ARRAY['pg_catalog.pg_proc', 'pg_catalog.pg_operator', 'pg_catalog.pg_type', 'pg_catalog.pg_collation']::regclass[])
    UNION
    -- The types and collations of the columns that the rules name.
    SELECT named.class, named.oid
    FROM (
        SELECT depend.refobjid, depend.refobjsubid
        FROM pg_catalog.pg_rewrite AS rule
        JOIN pg_catalog.pg_depend AS depend
            ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
        WHERE rule.ev_class = ANY ($1::oid[]) AND depend.refclassid = 'pg_catalog.pg_class'::regclass AND depend.refobjsubid > 0
    ) AS read (relation, column_number)
    JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = read.relation AND attribute.attnum = read.column_number
    CROSS JOIN LATERAL (VALUES
        ('pg_catalog.pg_type'::regclass::oid, attribute.atttypid),
        ('pg_catalog.pg_collation'::regclass::oid, attribute.attcollation)
    ) AS named (class, oid)
    UNION
    SELECT next.class, next.oid
    FROM depends_on
    CROSS JOIN LATERAL (
        SELECT depend.refclassid::oid, depend.refobjid
        FROM pg_catalog.pg_depend AS depend
        WHERE depend.classid = depends_on.class AND depend.objid = depends_on.oid
          AND depend.refclassid = ANY (ARRAY['pg_catalog.pg_proc', 'pg_catalog.pg_operator', 'pg_catalog.pg_type', 'pg_catalog.pg_collation']::regclass[])
        UNION ALL
        SELECT 'pg_catalog.pg_proc'::regclass::oid, called.oid
        FROM pg_catalog.pg_proc AS function
        JOIN pg_catalog.pg_language AS language ON language.oid = function.prolang AND language.lanname NOT IN ('c', 'internal')
        CROSS JOIN LATERAL pg_catalog.regexp_matches(function.prosrc, '[[:alpha:]_][[:alnum:]_$]*', 'g') AS word (parts)
        JOIN pg_catalog.pg_proc AS called ON called.proname = pg_catalog.lower(word.parts[1])::name AND called.oid >= 16384
        WHERE depends_on.class = 'pg_catalog.pg_proc'::regclass AND function.oid = depends_on.oid AND function.oid >= 16384
          AND function.pronamespace IS DISTINCT FROM pg_catalog.to_regnamespace('egret')
        UNION ALL
        -- Fields of a composite type, and what checks of a domain and the operators of a type call.
        SELECT 'pg_catalog.pg_type'::regclass::oid, field.atttypid
        FROM pg_catalog.pg_type AS type
        JOIN pg_catalog.pg_class AS class ON class.oid = type.typrelid AND class.relkind = 'c'
        JOIN pg_catalog.pg_attribute AS field ON field.attrelid = class.oid AND field.attnum > 0 AND NOT field.attisdropped
        WHERE depends_on.class = 'pg_catalog.pg_type'::regclass AND type.oid = depends_on.oid
        UNION ALL
        SELECT depend.refclassid::oid, depend.refobjid
        FROM pg_catalog.pg_constraint AS checked
        JOIN pg_catalog.pg_depend AS depend
            ON depend.classid = 'pg_catalog.pg_constraint'::regclass AND depend.objid = checked.oid
        WHERE depends_on.class = 'pg_catalog.pg_type'::regclass AND checked.contypid = depends_on.oid AND checked.contypid >= 16384
          AND depend.refclassid = ANY (ARRAY['pg_catalog.pg_proc', 'pg_catalog.pg_operator']::regclass[])
        UNION ALL
        SELECT 'pg_catalog.pg_proc'::regclass::oid, support.amproc::oid
        FROM pg_catalog.pg_opclass AS class
        JOIN pg_catalog.pg_amproc AS support
            ON support.amprocfamily = class.opcfamily AND support.amproclefttype = class.opcintype
        WHERE depends_on.class = 'pg_catalog.pg_type'::regclass AND class.opcintype = depends_on.oid AND class.opcdefault
          AND class.opcintype >= 16384
    ) AS next (class, oid)
    WHERE next.oid >= 16384
)
SELECT coalesce(pg_catalog.array_agg(DISTINCT depends_on.oid ORDER BY depends_on.oid), '{}')
FROM depends_on
WHERE depends_on.oid >= 16384
  -- Neither the row types of the relations themselves, which are made anew each time, nor what is Egret's own.
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS class WHERE class.reltype = depends_on.oid AND class.relkind <> 'c')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc AS function
                  WHERE function.oid = depends_on.oid AND function.pronamespace = pg_catalog.to_regnamespace('egret'))
