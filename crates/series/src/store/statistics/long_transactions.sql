SELECT count(*)::float8 AS "transactions",
    coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
        AS "transactions_oldest_timestamp_seconds"
FROM pg_stat_activity
WHERE state IS DISTINCT FROM 'idle' AND clock_timestamp() - xact_start > interval '1 minute'
    AND backend_type = 'client backend'
