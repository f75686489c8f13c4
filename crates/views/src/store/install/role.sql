-- The role that owns views without a named owner. It is no superuser, cannot log in and has no members, so that only a
-- superuser changes what it owns. Its functions run statements that follow from users' queries: a function that is
-- SECURITY DEFINER cannot become another role. A later version of a function gets another name.
DO $do$
DECLARE
    member text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'egret_views') THEN
        BEGIN
            CREATE ROLE egret_views NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            -- Made in another database at the same moment.
            NULL;
        END;
    END IF;
    SELECT pg_catalog.string_agg(role.rolname, ', ') INTO member
    FROM pg_catalog.pg_auth_members AS membership
    JOIN pg_catalog.pg_roles AS role ON role.oid = membership.member
    WHERE membership.roleid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = 'egret_views') AND NOT role.rolsuper;
    IF member IS NOT NULL THEN
        RAISE EXCEPTION 'role egret_views runs the queries of views and has members: %', member
            USING ERRCODE = 'insufficient_privilege', HINT = 'REVOKE egret_views FROM each of them.';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'egret_views'
               AND (rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)) THEN
        ALTER ROLE egret_views NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
    END IF;
    IF pg_catalog.to_regprocedure('egret.run_as_views(text,text,text)') IS NOT NULL
       AND pg_catalog.has_schema_privilege('egret_views', 'egret', 'USAGE') THEN
        RETURN;
    END IF;
    EXECUTE $sql$
        -- Refuses a session in which the code of a query has prepared something that would run later, with the rights of
        -- the session.
        CREATE OR REPLACE FUNCTION egret.refuse_leftovers() RETURNS void
        LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            SET CONSTRAINTS ALL IMMEDIATE;
            IF EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)
               OR EXISTS (SELECT FROM pg_cursors WHERE is_holdable) THEN
                RAISE EXCEPTION 'the query of a view has left a prepared statement or a cursor behind'
                    USING ERRCODE = 'insufficient_privilege';
            END IF;
        END
        $body$;
        CREATE OR REPLACE FUNCTION egret.run_as_views(statement text, snapshot text, clock text)
        RETURNS TABLE (added bigint, changed bigint, removed bigint, wrong bigint)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $body$
        BEGIN
            RETURN QUERY EXECUTE $1 USING $2, $3;
            PERFORM refuse_leftovers();
            IF current_setting('search_path') <> 'pg_catalog, egret, pg_temp' THEN
                RAISE EXCEPTION 'the query of a view has set the search_path' USING ERRCODE = 'insufficient_privilege';
            END IF;
        END
        $body$;
        CREATE OR REPLACE FUNCTION egret.explain_as_views(statement text, snapshot text, clock text) RETURNS SETOF text
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $body$
        BEGIN
            RETURN QUERY EXECUTE $1 USING $2, $3;
            PERFORM refuse_leftovers();
        END
        $body$;
        CREATE OR REPLACE FUNCTION egret.tell_as_views(query text) RETURNS TABLE (content text, weight bigint)
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $body$
        BEGIN
            RETURN QUERY EXECUTE $1;
            PERFORM refuse_leftovers();
        END
        $body$;
        -- Names in the query mean what they mean in the session: it has no search_path of its own.
        CREATE OR REPLACE FUNCTION egret.probe_as_views(statement text) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER AS $body$
        DECLARE
            path CONSTANT text := pg_catalog.current_setting('search_path');
        BEGIN
            EXECUTE $1;
            PERFORM egret.refuse_leftovers();
            IF pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.<>) path THEN
                RAISE EXCEPTION 'the query of a view has set the search_path' USING ERRCODE = 'insufficient_privilege';
            END IF;
        END
        $body$;
        ALTER FUNCTION egret.run_as_views(text, text, text) OWNER TO egret_views;
        ALTER FUNCTION egret.explain_as_views(text, text, text) OWNER TO egret_views;
        ALTER FUNCTION egret.tell_as_views(text) OWNER TO egret_views;
        ALTER FUNCTION egret.probe_as_views(text) OWNER TO egret_views;
        REVOKE ALL ON FUNCTION egret.refuse_leftovers(), egret.run_as_views(text, text, text),
            egret.explain_as_views(text, text, text), egret.tell_as_views(text), egret.probe_as_views(text) FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION egret.refuse_leftovers() TO egret_views;
        GRANT USAGE ON SCHEMA egret TO egret_views;
        -- What the triggers of views in mode immediate write.
        GRANT SELECT, UPDATE ON egret.view TO egret_views;
        GRANT SELECT, INSERT, UPDATE, DELETE ON egret.view_statement TO egret_views;
    $sql$;
END
$do$;
