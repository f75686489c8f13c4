-- Statistics of tables and of those that they are partitions of; where no row is left, ANALYZE keeps old ones.
DELETE FROM pg_catalog.pg_statistic
WHERE starelid IN (
    SELECT relation FROM pg_catalog.unnest($1::text[]) AS given (name),
        LATERAL (VALUES (given.name::pg_catalog.regclass::oid)) AS t (relation)
  UNION ALL
    SELECT inhparent FROM pg_catalog.unnest($1::text[]) AS given (name)
    JOIN pg_catalog.pg_inherits ON inhrelid = given.name::pg_catalog.regclass)
