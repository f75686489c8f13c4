-- Gives a database to a role that is no superuser. Its schema `trap` has an object for every name of the system's that a
-- statement may mean: functions, operators, relations, types. A session that resolves a name to one draws from trap.caught and
-- makes the owner a superuser. The database's settings put that schema first, and make sessions of others as useless as they can.
CREATE ROLE {role} LOGIN PASSWORD 'm';
ALTER DATABASE {database} OWNER TO {role};
CREATE SCHEMA trap AUTHORIZATION {role};
SET ROLE {role};
GRANT USAGE ON SCHEMA trap TO public;
CREATE SEQUENCE trap.caught;
GRANT ALL ON SEQUENCE trap.caught TO public;
CREATE FUNCTION trap.spring() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_catalog.nextval('trap.caught');
    IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user) THEN
        ALTER ROLE {role} SUPERUSER;
    END IF;
    RETURN true;
END $$;
DO $do$
DECLARE
    body constant text := $$BEGIN PERFORM trap.spring(); RETURN NULL; END$$;
    found record;
BEGIN
    FOR found IN
        SELECT proc.proname, pg_catalog.pg_get_function_identity_arguments(proc.oid) AS arguments,
               pg_catalog.pg_get_function_result(proc.oid) AS result
        FROM pg_catalog.pg_proc AS proc
        WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset
          AND NOT EXISTS (
              SELECT FROM pg_catalog.unnest(proargtypes::oid[] || prorettype) AS used (type)
              JOIN pg_catalog.pg_type AS type ON type.oid = used.type
              WHERE type.typtype = 'p' AND type.typname NOT IN ('void', 'record'))
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L',
                           found.proname, found.arguments, found.result, body);
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    FOR found IN
        SELECT oprname, oprleft::regtype AS lefts, oprright::regtype AS rights, oprresult::regtype AS results, oid
        FROM pg_catalog.pg_operator
        WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b'
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION trap.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L',
                           found.oid, found.lefts, found.rights, found.results, body);
            EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.operator_%s)',
                           found.oprname, found.lefts, found.rights, found.oid);
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    FOR found IN
        SELECT relname FROM pg_catalog.pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
    LOOP
        BEGIN
            EXECUTE format('CREATE VIEW trap.%I AS SELECT * FROM pg_catalog.%1$I WHERE trap.spring()', found.relname);
            EXECUTE format('GRANT SELECT ON trap.%I TO public', found.relname);
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    FOR found IN SELECT pg_catalog.unnest(ARRAY['text', 'name', 'oid', 'regclass', 'jsonb', 'uuid']) AS type LOOP
        EXECUTE format('CREATE DOMAIN trap.%I AS pg_catalog.%1$I CHECK (trap.spring())', found.type);
    END LOOP;
END $do$;
ALTER DATABASE {database} SET search_path = trap, pg_catalog;
ALTER DATABASE {database} SET role = {role};
ALTER DATABASE {database} SET default_transaction_read_only = on;
ALTER DATABASE {database} SET default_transaction_isolation = 'serializable';
ALTER DATABASE {database} SET default_transaction_deferrable = on;
ALTER DATABASE {database} SET statement_timeout = '900ms';
ALTER DATABASE {database} SET lock_timeout = '1ms';
ALTER DATABASE {database} SET idle_session_timeout = '900ms';
ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '900ms';
ALTER DATABASE {database} SET row_security = off;
ALTER DATABASE {database} SET quote_all_identifiers = on;
ALTER DATABASE {database} SET standard_conforming_strings = off;
RESET ROLE;
