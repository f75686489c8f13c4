-- Statements that have the PostgreSQL views which users read refuse writes: view $1, or all of them. Those that show no table of
-- Egret's are not Egret's own, or have nothing that could be written.
SELECT pg_catalog.format('%I.%I', kept.schema, kept.name) AS name,
       pg_catalog.format(
           'CREATE OR REPLACE TRIGGER egret_refuse_write BEFORE INSERT OR UPDATE OR DELETE ON %1$I.%2$I '
           'FOR EACH STATEMENT EXECUTE FUNCTION egret.refuse_write(); '
           -- PostgreSQL calls triggers of a view, and those above too, only where a view has one of these.
           'CREATE OR REPLACE TRIGGER egret_refuse_write_row INSTEAD OF INSERT OR UPDATE OR DELETE ON %1$I.%2$I '
           'FOR EACH ROW EXECUTE FUNCTION egret.refuse_write()', kept.schema, kept.name) AS statement
FROM egret.view AS kept
JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = kept.schema
JOIN pg_catalog.pg_class AS class
    ON class.relnamespace = namespace.oid AND class.relname = kept.name AND class.relkind = 'v'
WHERE ($1::bigint IS NULL OR kept.id = $1)
  AND 2 > (SELECT count(*) FROM pg_catalog.pg_trigger AS trigger
           WHERE trigger.tgrelid = class.oid AND trigger.tgname IN ('egret_refuse_write', 'egret_refuse_write_row')
             AND trigger.tgfoid = 'egret.refuse_write()'::regprocedure)
  AND EXISTS (
      SELECT FROM pg_catalog.pg_rewrite AS rule
      JOIN pg_catalog.pg_depend AS depend
          ON depend.classid = 'pg_catalog.pg_rewrite'::regclass AND depend.objid = rule.oid
          AND depend.refclassid = 'pg_catalog.pg_class'::regclass
      JOIN pg_catalog.pg_class AS shown ON shown.oid = depend.refobjid AND shown.relnamespace = 'egret'::regnamespace
      WHERE rule.ev_class = class.oid AND shown.relname ~ ('^view_' || kept.id || '_[0-9]+$'))
ORDER BY kept.id
