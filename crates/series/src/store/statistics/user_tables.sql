SELECT current_database()::text AS datname, schemaname::text, relname::text,
    seq_scan::float8, seq_tup_read::float8, idx_scan::float8, idx_tup_fetch::float8,
    n_tup_ins::float8, n_tup_upd::float8, n_tup_del::float8, n_tup_hot_upd::float8,
    n_live_tup::float8, n_dead_tup::float8, n_mod_since_analyze::float8,
    coalesce(extract(epoch FROM last_vacuum), 0)::float8 AS last_vacuum,
    coalesce(extract(epoch FROM last_autovacuum), 0)::float8 AS last_autovacuum,
    coalesce(extract(epoch FROM last_analyze), 0)::float8 AS last_analyze,
    coalesce(extract(epoch FROM last_autoanalyze), 0)::float8 AS last_autoanalyze,
    vacuum_count::float8, autovacuum_count::float8, analyze_count::float8, autoanalyze_count::float8,
    pg_catalog.pg_indexes_size(relid)::float8 AS index_size_bytes,
    pg_catalog.pg_table_size(relid)::float8 AS table_size_bytes
FROM pg_stat_user_tables
ORDER BY n_live_tup + n_dead_tup DESC
LIMIT $1
