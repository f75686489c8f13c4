SELECT datid::text AS datid, coalesce(datname, '')::text AS datname,
    numbackends::float8, xact_commit::float8, xact_rollback::float8, blks_read::float8, blks_hit::float8,
    tup_returned::float8, tup_fetched::float8, tup_inserted::float8, tup_updated::float8, tup_deleted::float8,
    conflicts::float8, temp_files::float8, temp_bytes::float8, deadlocks::float8, blk_read_time, blk_write_time,
    extract(epoch FROM stats_reset)::float8 AS stats_reset,
    active_time / 1000 AS active_time_seconds_total
FROM pg_stat_database
