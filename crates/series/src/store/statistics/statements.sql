SELECT coalesce(roles.rolname, '')::text AS "user", coalesce(databases.datname, '')::text AS datname,
    statements.queryid::text AS queryid,
    sum(statements.calls)::float8 AS calls_total, sum(statements.total_exec_time)::float8 / 1000 AS seconds_total,
    sum(statements.rows)::float8 AS rows_total,
    sum(statements.{blk}_read_time)::float8 / 1000 AS block_read_seconds_total,
    sum(statements.{blk}_write_time)::float8 / 1000 AS block_write_seconds_total
FROM {schema}.pg_stat_statements AS statements
LEFT JOIN pg_roles AS roles ON roles.oid = statements.userid
LEFT JOIN pg_database AS databases ON databases.oid = statements.dbid
WHERE statements.queryid IS NOT NULL
GROUP BY 1, 2, 3
ORDER BY sum(statements.total_exec_time) DESC
LIMIT $1
