SELECT datname::text, pg_database_size(oid)::float8 AS size_bytes, datconnlimit::float8 AS connection_limit
FROM pg_database
WHERE datallowconn
    AND (has_database_privilege(oid, 'CONNECT') OR pg_has_role(current_user, 'pg_read_all_stats', 'MEMBER'))
