-- Statements that drop the triggers by which changes of users' tables are recorded.
SELECT pg_catalog.format('DROP TRIGGER %I ON %I.%I', fired.tgname, namespace.nspname, class.relname)
FROM pg_catalog.pg_trigger AS fired
JOIN pg_catalog.pg_proc AS routine ON routine.oid = fired.tgfoid
JOIN pg_catalog.pg_class AS class ON class.oid = fired.tgrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE routine.pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
  AND NOT fired.tgisinternal AND fired.tgparentid = 0
  AND fired.tgname ~ '^egret_(before_)?(insert|update|delete|truncate)_[0-9]+$'
ORDER BY 1
