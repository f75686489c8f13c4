-- Whether the PostgreSQL view that users read of view $1 raises an error where the view is not maintained; no row if there is none
-- that shows a table of the view.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_rewrite AS rule
    JOIN pg_catalog.pg_depend AS depend
        ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
    WHERE rule.ev_class = class.oid AND depend.refclassid = 'pg_catalog.pg_proc'::regclass
      AND depend.refobjid = 'egret.require_live_view(bigint)'::regprocedure) AS is_guarded
FROM egret.view AS kept
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = kept.schema
JOIN pg_catalog.pg_class AS class
    ON class.relnamespace = namespace.oid AND class.relname = kept.name AND class.relkind = 'v'
WHERE kept.id = $1
  AND EXISTS (
      SELECT FROM pg_catalog.pg_rewrite AS rule
      JOIN pg_catalog.pg_depend AS depend
          ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
          AND depend.refclassid = 'pg_catalog.pg_class'::regclass
      JOIN pg_catalog.pg_class AS shown ON shown.oid = depend.refobjid AND shown.relnamespace = 'egret'::regnamespace
      WHERE rule.ev_class = class.oid AND shown.relname ~ ('^view_' || kept.id || '_[0-9]+$'))
