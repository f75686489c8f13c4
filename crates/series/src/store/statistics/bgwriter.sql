SELECT buffers_clean::float8 AS buffers_clean_total, maxwritten_clean::float8 AS maxwritten_clean_total,
    buffers_alloc::float8 AS buffers_alloc_total, extract(epoch FROM stats_reset)::float8 AS stats_reset_total
FROM pg_stat_bgwriter
