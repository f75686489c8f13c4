-- The sessions and prepared transactions that hold a lock on something in schema `egret`, or the one that migrations and removals
-- take, $1.
SELECT pg_catalog.string_agg(DISTINCT CASE
           WHEN held.pid IS NULL THEN 'a prepared transaction'
           ELSE pg_catalog.format('process %s of role %s', held.pid, COALESCE(activity.usename::text, 'unknown'))
       END, ', ')
FROM pg_catalog.pg_locks AS held
LEFT JOIN pg_catalog.pg_stat_activity AS activity ON activity.pid = held.pid
LEFT JOIN pg_catalog.pg_class AS class ON held.locktype = 'relation' AND class.oid = held.relation
WHERE held.granted AND held.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
  AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND (class.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
       OR (held.locktype = 'advisory' AND held.objsubid = 1
           AND ((held.classid::bigint << 32) | held.objid::bigint) = $1))
