SELECT format('%I.%I', nspname, relname)
FROM pg_class c
JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind = 'r' AND relpersistence <> 't' AND nspname NOT IN ('information_schema', 'egret') AND nspname !~ '^pg_'
ORDER BY 1
