SELECT num_timed::float8 AS num_timed_total, num_requested::float8 AS num_requested_total,
    restartpoints_timed::float8 AS restartpoints_timed_total, restartpoints_req::float8 AS restartpoints_req_total,
    restartpoints_done::float8 AS restartpoints_done_total, write_time AS write_time_total,
    sync_time AS sync_time_total, buffers_written::float8 AS buffers_written_total,
    extract(epoch FROM stats_reset)::float8 AS stats_reset_total
FROM pg_stat_checkpointer
