-- What the columns $2 of the tables $1, pair by pair, are found by: the partitions of a table count as it does. No table is locked for it.
WITH RECURSIVE part (relation, oid) AS (
    SELECT DISTINCT named, named FROM unnest($1::oid[]) AS named
    UNION ALL
    SELECT part.relation, inherits.inhrelid FROM part JOIN pg_catalog.pg_inherits AS inherits ON inherits.inhparent = part.oid
),
-- Of what was never analysed by what the server has seen written; -1 where that is nothing.
stored (relation, oid, rows) AS (
    SELECT part.relation, class.oid,
           CASE WHEN class.reltuples >= 0 THEN class.reltuples::bigint
                ELSE coalesce(nullif(pg_catalog.pg_stat_get_live_tuples(class.oid), 0), -1)
           END
    FROM part JOIN pg_catalog.pg_class AS class ON class.oid = part.oid
    WHERE class.relkind <> 'p'
)
SELECT class.oid AS relation, pg_catalog.format('%I.%I', namespace.nspname, class.relname) AS table_sql,
       (SELECT CASE WHEN min(stored.rows) < 0 THEN -1 ELSE coalesce(sum(stored.rows), 0)::bigint END
        FROM stored WHERE stored.relation = class.oid) AS rows,
       attribute.attname AS column, pg_catalog.quote_ident(attribute.attname) AS column_sql,
       attribute.atttypid = 'pg_catalog.varchar'::pg_catalog.regtype AS is_found_by_text,
       NOT EXISTS (
           SELECT FROM stored
           WHERE stored.relation = class.oid AND NOT EXISTS (
               SELECT FROM pg_catalog.pg_index AS index
               JOIN pg_catalog.pg_class AS made ON made.oid = index.indexrelid
               JOIN pg_catalog.pg_am AS method ON method.oid = made.relam
               JOIN pg_catalog.pg_attribute AS first ON first.attrelid = index.indrelid AND first.attnum = index.indkey[0]
               WHERE index.indrelid = stored.oid AND index.indisvalid AND index.indpred IS NULL AND method.amname IN ('btree', 'hash')
                 AND first.attname = attribute.attname AND index.indcollation[0] = first.attcollation)
       ) AS is_indexed
FROM unnest($1::oid[], $2::text[]) AS read (relation, column_name)
JOIN pg_catalog.pg_class AS class ON class.oid = read.relation
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = class.oid AND attribute.attname = read.column_name
