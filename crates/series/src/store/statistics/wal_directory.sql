SELECT count(*)::float8 AS segments, coalesce(sum(size), 0)::float8 AS size_bytes
FROM pg_ls_waldir()
WHERE name ~ '^[0-9A-F]{24}$'
