SELECT wal_records::float8 AS records_total, wal_fpi::float8 AS fpi_total, wal_bytes::float8 AS bytes_total,
    wal_buffers_full::float8 AS buffers_full_total, wal_write::float8 AS write_total, wal_sync::float8 AS sync_total,
    wal_write_time / 1000 AS write_time_seconds_total, wal_sync_time / 1000 AS sync_time_seconds_total
FROM pg_stat_wal
