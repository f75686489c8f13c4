-- Statements that give an identity to the tables of this engine that have none; with $1 only to those that the transaction
-- has locked against all others, as it has what it made. Unlogged tables are not published.
SELECT pg_catalog.format('ALTER TABLE egret.%I REPLICA IDENTITY FULL', class.relname)
FROM pg_catalog.pg_class AS class
WHERE class.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
  AND class.relkind = 'r' AND class.relpersistence = 'p' AND class.relreplident = 'd'
  AND class.relname ~ '^(view_refresh|(view|edge|changes|lock)_[0-9]+(_[0-9]+)?(_aside|_second)?)$'
  AND pg_catalog.pg_has_role(class.relowner, 'USAGE')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_index AS key WHERE key.indrelid = class.oid AND key.indisprimary)
  AND (NOT $1::boolean OR EXISTS (
      SELECT FROM pg_catalog.pg_locks AS held
      WHERE held.locktype = 'relation' AND held.pid = pg_catalog.pg_backend_pid() AND held.relation = class.oid
        AND held.mode = 'AccessExclusiveLock' AND held.granted))
ORDER BY 1
