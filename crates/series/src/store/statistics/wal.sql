SELECT wal_records::float8 AS records_total, wal_fpi::float8 AS fpi_total, wal_bytes::float8 AS bytes_total,
    wal_buffers_full::float8 AS buffers_full_total
FROM pg_stat_wal
