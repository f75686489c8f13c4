SELECT checkpoints_timed::float8 AS checkpoints_timed_total, checkpoints_req::float8 AS checkpoints_req_total,
    checkpoint_write_time AS checkpoint_write_time_total, checkpoint_sync_time AS checkpoint_sync_time_total,
    buffers_checkpoint::float8 AS buffers_checkpoint_total, buffers_clean::float8 AS buffers_clean_total,
    maxwritten_clean::float8 AS maxwritten_clean_total, buffers_backend::float8 AS buffers_backend_total,
    buffers_backend_fsync::float8 AS buffers_backend_fsync_total, buffers_alloc::float8 AS buffers_alloc_total,
    extract(epoch FROM stats_reset)::float8 AS stats_reset_total
FROM pg_stat_bgwriter
