-- Takes the tables of schema egret out of publications that filter their rows or columns: one by what is no part of the
-- key refuses deletions.
DO $leave$
DECLARE
    command text;
BEGIN
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
END
$leave$;
