-- The numbers of views and captures, and the oids of the views that users read.
SELECT ARRAY(SELECT id FROM egret.view),
       ARRAY(SELECT id FROM egret.view_capture),
       ARRAY(SELECT class.oid
             FROM egret.view AS kept
             JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = kept.schema
             JOIN pg_catalog.pg_class AS class
                 ON class.relnamespace = namespace.oid AND class.relname = kept.name AND class.relkind = 'v')
