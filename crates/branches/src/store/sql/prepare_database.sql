SET search_path = '';

DO $prepare$
DECLARE
    command text;
    -- Puts the event triggers back as they were.
    restore text[] := ARRAY[]::text[];
BEGIN
    -- Sessions of Egret do not fire event triggers where the server can be told so, which is from 17
    -- on. Before, they are off while definitions change; their own changes fire none.
    IF current_setting('server_version_num')::int < 170000 THEN
        SELECT coalesce(array_agg(format('ALTER EVENT TRIGGER %I %s', evtname,
                   CASE evtenabled WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE' END)), restore)
        INTO restore FROM pg_catalog.pg_event_trigger WHERE evtenabled <> 'D';
        FOR command IN
            SELECT format('ALTER EVENT TRIGGER %I ', evtname) FROM pg_catalog.pg_event_trigger
            WHERE evtenabled <> 'D'
        LOOP
            EXECUTE command || 'DISABLE';
        END LOOP;
    END IF;

    -- Subscriptions would need their publisher; the slot there is the source's.
    FOR command IN
        SELECT unnest(ARRAY[
            format('ALTER SUBSCRIPTION %I DISABLE', subname),
            -- DROP would connect to remove the slots of tables that are still being copied.
            format('ALTER SUBSCRIPTION %I CONNECTION %L', subname, 'host=/nonexistent dbname=none'),
            format('ALTER SUBSCRIPTION %I SET (slot_name = NONE)', subname),
            format('DROP SUBSCRIPTION %I', subname)])
        FROM pg_catalog.pg_subscription
        WHERE subdbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    LOOP
        EXECUTE command;
    END LOOP;

    -- A foreign table must not write to the real thing.
    FOR command IN
        SELECT format('DROP USER MAPPING FOR %s SERVER %I',
                      CASE WHEN umuser = 0 THEN 'PUBLIC' ELSE quote_ident(usename) END, srvname)
        FROM pg_catalog.pg_user_mappings
    LOOP
        EXECUTE command;
    END LOOP;

    -- Files and programs of the host, read through file_fdw.
    FOR command IN
        SELECT format('DROP FOREIGN TABLE IF EXISTS %s CASCADE', ftrelid::regclass)
        FROM pg_catalog.pg_foreign_table
        JOIN pg_catalog.pg_foreign_server s ON s.oid = ftserver
        JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = srvfdw
        JOIN pg_catalog.pg_proc p ON p.oid = fdwhandler
        WHERE proname = 'file_fdw_handler'
    LOOP
        EXECUTE command;
    END LOOP;

    -- Functions in untrusted languages run code on the host, those of event triggers run as the role
    -- that fires them. They stay the superuser's, and no other role may execute the former.
    FOR command IN
        SELECT format('REVOKE EXECUTE ON ROUTINE %s FROM %s CASCADE', p.oid::regprocedure,
                      CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
        FROM pg_catalog.pg_proc p
        JOIN pg_catalog.pg_language l ON l.oid = prolang
        CROSS JOIN LATERAL aclexplode(coalesce(proacl, acldefault('f', proowner)))
        WHERE NOT lanpltrusted AND p.oid >= 16384 AND grantee <> 10
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend
                          WHERE classid = 'pg_catalog.pg_proc'::regclass AND objid = p.oid AND deptype = 'e')
    LOOP
        EXECUTE command;
    END LOOP;

    -- Rights on functions of the system and of extensions that were granted beyond the initial ones,
    -- such as on lo_export or pg_read_file.
    FOR command IN
        SELECT format('REVOKE EXECUTE ON ROUTINE %s FROM %s CASCADE', p.oid::regprocedure,
                      CASE WHEN added.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(added.grantee)) END)
        FROM pg_catalog.pg_proc p
        JOIN pg_catalog.pg_init_privs i ON i.objoid = p.oid AND i.classoid = 'pg_catalog.pg_proc'::regclass
        CROSS JOIN LATERAL aclexplode(p.proacl) AS added
        WHERE added.grantee <> p.proowner
          AND NOT EXISTS (SELECT FROM aclexplode(i.initprivs) AS initial WHERE initial.grantee = added.grantee)
    LOOP
        EXECUTE command;
    END LOOP;

    -- What Egret keeps for the source is inert here: its triggers on tables outside of its schema, which
    -- record changes, are gone, and its functions run with the rights of the branch role, which gets
    -- the schema below. A task enqueued in a copy stays where it is, to be looked at.
    FOR command IN
        SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass)
        FROM pg_catalog.pg_trigger t
        JOIN pg_catalog.pg_proc p ON p.oid = tgfoid
        JOIN pg_catalog.pg_class c ON c.oid = tgrelid
        WHERE NOT tgisinternal AND tgparentid = 0
          AND pronamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'egret')
          AND relnamespace <> pronamespace
    LOOP
        EXECUTE command;
    END LOOP;

    -- Objects of the bootstrap superuser (role 10), extensions excepted.
    FOR command IN
        WITH extension_member AS (
            SELECT classid, objid FROM pg_catalog.pg_depend WHERE deptype = 'e'
        ), follows_its_table AS (
            SELECT objid FROM pg_catalog.pg_depend
            WHERE classid = 'pg_catalog.pg_class'::regclass
              AND refclassid = 'pg_catalog.pg_class'::regclass AND deptype IN ('a', 'i')
        ), object AS (
            SELECT 'pg_catalog.pg_namespace'::regclass AS class, oid, nspname AS schema, nspowner AS owner,
                   format('SCHEMA %I', nspname) AS spelled
            FROM pg_catalog.pg_namespace
          UNION ALL
            SELECT 'pg_catalog.pg_class'::regclass, c.oid, nspname, relowner,
                   format('%s %I.%I', CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
                                      WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'S' THEN 'SEQUENCE'
                                      ELSE 'TABLE' END, nspname, relname)
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
            WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
              AND NOT (relkind = 'S' AND c.oid IN (SELECT objid FROM follows_its_table))
          UNION ALL
            SELECT 'pg_catalog.pg_proc'::regclass, p.oid, nspname, proowner, format('ROUTINE %s', p.oid::regprocedure)
            FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace
            JOIN pg_catalog.pg_language l ON l.oid = prolang
            WHERE (lanpltrusted OR lanname = 'sql') AND prorettype <> 'pg_catalog.event_trigger'::regtype
          UNION ALL
            SELECT 'pg_catalog.pg_type'::regclass, t.oid, nspname, typowner,
                   format('%s %I.%I', CASE typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, nspname, typname)
            FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = typnamespace
            LEFT JOIN pg_catalog.pg_class c ON c.oid = typrelid
            WHERE typtype IN ('d', 'e', 'r', 'c', 'b') AND typelem = 0
              AND (typtype <> 'c' OR c.relkind = 'c')
          UNION ALL
            SELECT 'pg_catalog.pg_operator'::regclass, o.oid, nspname, oprowner, format('OPERATOR %s', o.oid::regoperator)
            FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_namespace n ON n.oid = oprnamespace
          UNION ALL
            SELECT 'pg_catalog.pg_opclass'::regclass, o.oid, nspname, opcowner,
                   format('OPERATOR CLASS %I.%I USING %I', nspname, opcname, amname)
            FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_namespace n ON n.oid = opcnamespace
            JOIN pg_catalog.pg_am a ON a.oid = opcmethod
          UNION ALL
            SELECT 'pg_catalog.pg_opfamily'::regclass, o.oid, nspname, opfowner,
                   format('OPERATOR FAMILY %I.%I USING %I', nspname, opfname, amname)
            FROM pg_catalog.pg_opfamily o JOIN pg_catalog.pg_namespace n ON n.oid = opfnamespace
            JOIN pg_catalog.pg_am a ON a.oid = opfmethod
          UNION ALL
            SELECT 'pg_catalog.pg_collation'::regclass, c.oid, nspname, collowner, format('COLLATION %I.%I', nspname, collname)
            FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = collnamespace
          UNION ALL
            SELECT 'pg_catalog.pg_conversion'::regclass, c.oid, nspname, conowner, format('CONVERSION %I.%I', nspname, conname)
            FROM pg_catalog.pg_conversion c JOIN pg_catalog.pg_namespace n ON n.oid = connamespace
          UNION ALL
            SELECT 'pg_catalog.pg_ts_dict'::regclass, d.oid, nspname, dictowner, format('TEXT SEARCH DICTIONARY %I.%I', nspname, dictname)
            FROM pg_catalog.pg_ts_dict d JOIN pg_catalog.pg_namespace n ON n.oid = dictnamespace
          UNION ALL
            SELECT 'pg_catalog.pg_ts_config'::regclass, c.oid, nspname, cfgowner, format('TEXT SEARCH CONFIGURATION %I.%I', nspname, cfgname)
            FROM pg_catalog.pg_ts_config c JOIN pg_catalog.pg_namespace n ON n.oid = cfgnamespace
          UNION ALL
            SELECT 'pg_catalog.pg_statistic_ext'::regclass, s.oid, nspname, stxowner, format('STATISTICS %I.%I', nspname, stxname)
            FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_namespace n ON n.oid = stxnamespace
          UNION ALL
            SELECT 'pg_catalog.pg_publication'::regclass, oid, '', pubowner, format('PUBLICATION %I', pubname)
            FROM pg_catalog.pg_publication
          UNION ALL
            SELECT 'pg_catalog.pg_foreign_server'::regclass, oid, '', srvowner, format('SERVER %I', srvname)
            FROM pg_catalog.pg_foreign_server
          UNION ALL
            SELECT 'pg_catalog.pg_largeobject_metadata'::regclass, oid, '', lomowner, format('LARGE OBJECT %s', oid)
            FROM pg_catalog.pg_largeobject_metadata
        )
        SELECT format('ALTER %s OWNER TO egret_branch', spelled)
        FROM object
        WHERE owner = 10 AND oid >= 16384 AND schema !~ '^pg_'
          AND (class::oid, oid) NOT IN (SELECT classid, objid FROM extension_member)
        ORDER BY spelled
    LOOP
        EXECUTE command;
    END LOOP;

    -- No code of the superuser's runs with the superuser's rights because a branch user caused it: what
    -- is left, functions of event triggers and of extensions, runs with the rights of its caller.
    FOR command IN
        SELECT format('ALTER ROUTINE %s SECURITY INVOKER', oid::regprocedure)
        FROM pg_catalog.pg_proc WHERE prosecdef AND proowner = 10 AND oid >= 16384
    LOOP
        EXECUTE command;
    END LOOP;

    -- Schema public belongs to the database's owner.
    IF EXISTS (SELECT FROM pg_catalog.pg_database
               WHERE datname = current_database() AND datdba = 10 AND NOT datistemplate) THEN
        EXECUTE format('ALTER DATABASE %I OWNER TO egret_branch', current_database());
    END IF;

    FOREACH command IN ARRAY restore LOOP
        EXECUTE command;
    END LOOP;
END
$prepare$;
