SELECT (SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid)
     + (SELECT count(*) FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid)
FROM pg_catalog.pg_namespace n
WHERE n.nspname = 'egret'
