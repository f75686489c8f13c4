-- Triggers and rules that Egret has not made and that may go with what it has: those on its tables and on views, and those that
-- call its functions. Those of partitions go and stay with that of their table.
SELECT fired.tableoid AS class, fired.oid,
       coalesce(pg_catalog.pg_describe_object(fired.tableoid, fired.oid, 0), fired.tgname) AS object,
       pg_catalog.format('DROP TRIGGER %I ON %I.%I', fired.tgname, namespace.nspname, class.relname) AS command
FROM pg_catalog.pg_trigger AS fired
JOIN pg_catalog.pg_proc AS routine ON routine.oid = fired.tgfoid
JOIN pg_catalog.pg_class AS class ON class.oid = fired.tgrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE NOT fired.tgisinternal AND fired.tgparentid = 0
  AND (namespace.nspname = 'egret' OR class.relkind = 'v' OR routine.pronamespace = pg_catalog.to_regnamespace('egret'))
  AND NOT (fired.tgname ~ '^egret_((before_)?(insert|update|delete|truncate)_[0-9]+|refuse_write(_row)?)$'
           AND routine.pronamespace IS NOT DISTINCT FROM pg_catalog.to_regnamespace('egret'))
UNION ALL
SELECT rule.tableoid, rule.oid,
       coalesce(pg_catalog.pg_describe_object(rule.tableoid, rule.oid, 0), rule.rulename),
       pg_catalog.format('DROP RULE %I ON %I.%I', rule.rulename, namespace.nspname, class.relname)
FROM pg_catalog.pg_rewrite AS rule
JOIN pg_catalog.pg_class AS class ON class.oid = rule.ev_class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE rule.rulename <> '_RETURN' AND (namespace.nspname = 'egret' OR class.relkind = 'v')
ORDER BY command
