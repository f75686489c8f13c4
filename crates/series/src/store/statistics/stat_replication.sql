WITH at AS (
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END AS lsn
)
SELECT DISTINCT ON (1, 2, 3, 4)
    coalesce(replica.application_name, '')::text AS application_name,
    coalesce(host(replica.client_addr), '')::text AS client_addr, coalesce(replica.state, '')::text AS state,
    coalesce(slot.slot_name, '')::text AS slot_name,
    pg_wal_lsn_diff(at.lsn, '0/0')::float8 AS pg_current_wal_lsn_bytes,
    pg_wal_lsn_diff(at.lsn, replica.replay_lsn)::float8 AS pg_wal_lsn_diff,
    extract(epoch FROM replica.write_lag)::float8 AS write_lag_seconds,
    extract(epoch FROM replica.flush_lag)::float8 AS flush_lag_seconds,
    extract(epoch FROM replica.replay_lag)::float8 AS replay_lag_seconds
FROM pg_stat_replication AS replica
CROSS JOIN at
LEFT JOIN pg_replication_slots AS slot ON slot.active_pid = replica.pid
