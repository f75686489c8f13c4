WITH found AS (
    SELECT name, unit, vartype,
        CASE vartype WHEN 'bool' THEN (setting = 'on')::int::float8 ELSE setting::float8 END AS value
    FROM pg_settings
    WHERE vartype IN ('bool', 'integer', 'real') AND name = ANY (ARRAY[
        'autovacuum', 'autovacuum_analyze_scale_factor', 'autovacuum_freeze_max_age', 'autovacuum_max_workers',
        'autovacuum_naptime', 'autovacuum_vacuum_cost_delay', 'autovacuum_vacuum_cost_limit',
        'autovacuum_vacuum_scale_factor', 'autovacuum_work_mem', 'checkpoint_completion_target', 'checkpoint_timeout',
        'data_checksums', 'deadlock_timeout', 'default_statistics_target', 'effective_cache_size',
        'effective_io_concurrency', 'fsync', 'full_page_writes', 'hot_standby', 'idle_in_transaction_session_timeout',
        'jit', 'lock_timeout', 'log_min_duration_statement', 'maintenance_work_mem', 'max_connections',
        'max_locks_per_transaction', 'max_parallel_workers', 'max_parallel_workers_per_gather',
        'max_prepared_transactions', 'max_replication_slots', 'max_slot_wal_keep_size', 'max_wal_senders',
        'max_wal_size', 'max_worker_processes', 'min_wal_size', 'random_page_cost', 'seq_page_cost', 'shared_buffers',
        'statement_timeout', 'superuser_reserved_connections', 'synchronous_commit', 'temp_buffers',
        'track_io_timing', 'wal_buffers', 'wal_compression', 'wal_keep_size', 'wal_segment_size', 'work_mem'
    ])
)
SELECT
    replace(name, '.', '_') || CASE
        WHEN unit IN ('B', 'kB', '8kB', 'MB') THEN '_bytes'
        WHEN unit IN ('ms', 's', 'min') THEN '_seconds'
        ELSE ''
    END AS metric_name,
    CASE
        WHEN value < 0 THEN value
        ELSE value * CASE unit
            WHEN 'kB' THEN 1024 WHEN '8kB' THEN 8192 WHEN 'MB' THEN 1048576
            WHEN 'ms' THEN 0.001 WHEN 'min' THEN 60 ELSE 1
        END
    END::float8 AS value
FROM found
