SELECT (SELECT system_identifier::text FROM pg_control_system()) AS system_identifier,
       current_setting('shared_preload_libraries') AS preload_libraries,
       current_setting('max_prepared_transactions') AS max_prepared_transactions,
       ARRAY(SELECT spcname::text FROM pg_tablespace
             WHERE spcname NOT IN ('pg_default', 'pg_global') ORDER BY 1) AS tablespaces
