SELECT archived_count::float8, failed_count::float8,
    extract(epoch FROM now() - last_archived_time)::float8 AS last_archive_age
FROM pg_stat_archiver
