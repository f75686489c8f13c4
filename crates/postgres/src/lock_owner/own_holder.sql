SELECT held.pid
FROM pg_catalog.pg_locks held
JOIN pg_catalog.pg_locks own USING (pid, database, locktype, objsubid)
WHERE held.locktype = 'advisory' AND held.granted AND own.granted AND held.objsubid = 1
  AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND ((held.classid::bigint << 32) | held.objid::bigint) = $1
  AND ((own.classid::bigint << 32) | own.objid::bigint) = $2
LIMIT 1
