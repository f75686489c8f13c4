-- Tables that Egret made, as the bootstrap superuser (role 10), with the one that each is a partition of.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), coalesce(parent.relname, c.relname)::text
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = c.oid AND c.relispartition
LEFT JOIN pg_catalog.pg_class AS parent ON parent.oid = i.inhparent
WHERE n.nspname = 'egret' AND c.relkind = 'r' AND c.relowner = 10
ORDER BY c.relname
