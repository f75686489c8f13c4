WITH at AS (
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END AS lsn
)
SELECT slot_name::text, slot_type::text, coalesce(database, '')::text AS database,
    pg_wal_lsn_diff(at.lsn, '0/0')::float8 AS slot_current_wal_lsn,
    pg_wal_lsn_diff(coalesce(confirmed_flush_lsn, '0/0'), '0/0')::float8 AS slot_confirmed_flush_lsn,
    active::int::float8 AS slot_is_active, safe_wal_size::float8 AS safe_wal_size_bytes,
    pg_wal_lsn_diff(at.lsn, restart_lsn)::float8 AS retained_wal_bytes
FROM pg_replication_slots
CROSS JOIN at
