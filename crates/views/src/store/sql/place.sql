-- Where this is: the server, the database, and the table of views, which is another in a database that was restored.
SELECT pg_catalog.format(
           '%s/%s/%s',
           (SELECT system_identifier FROM pg_catalog.pg_control_system()),
           (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()),
           'egret.view'::pg_catalog.regclass::oid)
