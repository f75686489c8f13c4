SELECT current_database()::text AS datname, schemaname::text, relname::text,
    heap_blks_read::float8 AS heap_blocks_read, heap_blks_hit::float8 AS heap_blocks_hit,
    idx_blks_read::float8 AS idx_blocks_read, idx_blks_hit::float8 AS idx_blocks_hit,
    toast_blks_read::float8 AS toast_blocks_read, toast_blks_hit::float8 AS toast_blocks_hit,
    tidx_blks_read::float8 AS tidx_blocks_read, tidx_blks_hit::float8 AS tidx_blocks_hit
FROM pg_statio_user_tables
ORDER BY coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) DESC
LIMIT $1
