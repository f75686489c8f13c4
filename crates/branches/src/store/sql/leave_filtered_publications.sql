-- Takes the tables of schema egret out of publications that filter their rows or columns: one by what is no part of the
-- key refuses deletions.
DO $leave$
DECLARE
    command text;
    -- Puts the event triggers back as they were.
    restore text[] := ARRAY[]::text[];
BEGIN
    -- ENABLE ALWAYS and ENABLE REPLICA fire event triggers whatever the session's role of replication. Sessions of
    -- Egret fire none from 17 on; before, they are off meanwhile.
    IF pg_catalog.current_setting('server_version_num')::int < 170000 THEN
        SELECT coalesce(pg_catalog.array_agg(pg_catalog.format('ALTER EVENT TRIGGER %I %s', evtname,
                   CASE evtenabled WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE REPLICA' END)), restore)
        INTO restore FROM pg_catalog.pg_event_trigger WHERE evtenabled IN ('A', 'R');
        FOR command IN
            SELECT pg_catalog.format('ALTER EVENT TRIGGER %I DISABLE', evtname) FROM pg_catalog.pg_event_trigger
            WHERE evtenabled IN ('A', 'R')
        LOOP
            EXECUTE command;
        END LOOP;
    END IF;

    FOR command IN
        SELECT pg_catalog.format('ALTER PUBLICATION %I DROP TABLE ONLY %I.%I', p.pubname, n.nspname, c.relname)
        FROM pg_catalog.pg_publication_rel AS r
        JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
        JOIN pg_catalog.pg_class AS c ON c.oid = r.prrelid
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'egret' AND c.relowner = 10 AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)
    LOOP
        EXECUTE command;
    END LOOP;

    FOREACH command IN ARRAY restore LOOP
        EXECUTE command;
    END LOOP;
END
$leave$;
