-- What Egret's role lacks for views of any table of users and for metrics of the whole server: the statement that gives it, what it is for,
-- and how many there are in all. What is the system's or Egret's own is left out.
WITH own AS (
    SELECT oid, nspname FROM pg_catalog.pg_namespace
    WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'egret')
), tables AS (
    SELECT own.nspname, class.relname, class.relnamespace,
        pg_catalog.has_any_column_privilege(class.oid, 'SELECT') AS may_select,
        pg_catalog.has_table_privilege(class.oid, 'TRIGGER') AS may_trigger
    FROM own JOIN pg_catalog.pg_class AS class ON class.relnamespace = own.oid
    WHERE class.relkind IN ('r', 'p')
), lacking AS (
    SELECT 1 AS place,
        pg_catalog.format('GRANT TEMPORARY ON DATABASE %I TO %I', pg_catalog.current_database(), current_user) AS statement,
        'refreshes of views' AS purpose
    WHERE NOT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
    UNION ALL
    SELECT 2, pg_catalog.format('GRANT CREATE ON SCHEMA %I TO %I', nspname, current_user), 'views in schema public'
    FROM own WHERE nspname = 'public' AND NOT pg_catalog.has_schema_privilege(oid, 'CREATE')
    UNION ALL
    SELECT 3, pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', nspname, current_user), 'views that read tables of this schema'
    FROM own WHERE NOT pg_catalog.has_schema_privilege(oid, 'USAGE')
        AND EXISTS (SELECT FROM tables WHERE tables.relnamespace = own.oid)
    UNION ALL
    SELECT 4, pg_catalog.format('GRANT pg_monitor TO %I', current_user), 'metrics of all databases and sessions of the server'
    WHERE NOT pg_catalog.pg_has_role('pg_monitor', 'USAGE')
    UNION ALL
    SELECT 5,
        pg_catalog.format('GRANT %s ON %I.%I TO %I',
            pg_catalog.concat_ws(', ',
                CASE WHEN NOT may_select THEN 'SELECT' END,
                CASE WHEN NOT may_trigger THEN 'TRIGGER' END),
            nspname, relname, current_user),
        'views that read this table'
    FROM tables WHERE NOT (may_select AND may_trigger)
)
SELECT statement, purpose, pg_catalog.count(*) OVER () FROM lacking ORDER BY place, statement LIMIT 50
