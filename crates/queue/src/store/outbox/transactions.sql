-- Transactions of other sessions that have egret.outbox open, the oldest first: each with its process, its role and, where this
-- role may see it, its begin.
SELECT pg_catalog.string_agg(open.description, ', ')
FROM (
    SELECT CASE
        WHEN held.pid IS NULL THEN 'a prepared transaction'
        ELSE pg_catalog.format('process %s of role %s', held.pid, coalesce(session.usename::text, 'unknown'))
            || coalesce(' since ' || pg_catalog.date_trunc('second', pg_catalog.min(session.xact_start))::text, '')
        END AS description
    FROM pg_catalog.pg_locks AS held
    LEFT JOIN pg_catalog.pg_stat_activity AS session ON session.pid = held.pid
    WHERE held.locktype = 'relation' AND held.granted
      AND held.relation = pg_catalog.to_regclass('egret.outbox')
      AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
      AND held.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
    GROUP BY held.pid, session.usename
    ORDER BY pg_catalog.min(session.xact_start), held.pid
    LIMIT 5
) AS open
