SELECT format('pid %s, %s, from %s since %s',
              a.pid, a.application_name, coalesce(host(a.client_addr), 'this machine'),
              to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS'))
FROM pg_locks l
JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((l.classid::bigint << 32) | l.objid::bigint) = $1
LIMIT 1
