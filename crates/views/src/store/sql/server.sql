-- What a session never sees change: its server and database. The first is read from a file.
SELECT pg_catalog.concat(control.system_identifier, '/', here.oid) AS server
FROM pg_catalog.pg_control_system() AS control
CROSS JOIN pg_catalog.pg_database AS here
WHERE here.datname = pg_catalog.current_database()
