SELECT backend_type::text, object::text, context::text,
    reads::float8 AS reads_total, (reads * op_bytes)::float8 AS read_bytes_total,
    read_time / 1000 AS read_time_seconds_total,
    writes::float8 AS writes_total, (writes * op_bytes)::float8 AS write_bytes_total,
    write_time / 1000 AS write_time_seconds_total,
    extends::float8 AS extends_total, (extends * op_bytes)::float8 AS extend_bytes_total,
    extend_time / 1000 AS extend_time_seconds_total,
    writebacks::float8 AS writebacks_total, hits::float8 AS hits_total, evictions::float8 AS evictions_total,
    reuses::float8 AS reuses_total, fsyncs::float8 AS fsyncs_total, fsync_time / 1000 AS fsync_time_seconds_total
FROM pg_stat_io
