SELECT rolname::text AS role, rolpassword AS verifier,
       CASE rolvaliduntil
           WHEN 'infinity' THEN NULL
           WHEN '-infinity' THEN 0
           ELSE (extract(epoch FROM rolvaliduntil) * 1000000)::bigint
       END AS valid_until
FROM pg_catalog.pg_authid
WHERE rolcanlogin AND rolpassword LIKE 'SCRAM-SHA-256$%' AND rolname <> 'egret_branch'
LIMIT $1
