SELECT coalesce(databases.datname, '')::text AS datname, lower(locks.mode)::text AS mode, count(*)::float8 AS count
FROM pg_locks AS locks
LEFT JOIN pg_database AS databases ON databases.oid = locks.database
GROUP BY 1, 2
