SELECT
    CASE
        WHEN NOT pg_is_in_recovery() THEN 0
        WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
        ELSE greatest(0, extract(epoch FROM now() - pg_last_xact_replay_timestamp()))
    END::float8 AS lag_seconds,
    pg_is_in_recovery()::int::float8 AS is_replica,
    greatest(0, extract(epoch FROM now() - pg_last_xact_replay_timestamp()))::float8 AS last_replay_seconds
