-- Statements that drop the functions by which changes of users' tables are recorded, with their triggers: to drop a trigger by
-- itself takes the owner of its table.
SELECT DISTINCT pg_catalog.format('DROP FUNCTION egret.%I() CASCADE', routine.proname)
FROM pg_catalog.pg_trigger AS fired
JOIN pg_catalog.pg_proc AS routine ON routine.oid = fired.tgfoid
WHERE routine.pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
  AND NOT fired.tgisinternal AND fired.tgparentid = 0
  AND fired.tgname ~ '^egret_(before_)?(insert|update|delete|truncate)_[0-9]+$'
ORDER BY 1
