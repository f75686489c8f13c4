-- What a session never sees change: the server with the database, and its timeline. Both are read from files.
SELECT pg_catalog.concat(control.system_identifier, '/', here.oid) AS server, point.timeline_id AS timeline
FROM pg_catalog.pg_control_system() AS control
CROSS JOIN pg_catalog.pg_control_checkpoint() AS point
CROSS JOIN pg_catalog.pg_database AS here
WHERE here.datname = pg_catalog.current_database()
