-- Views in other schemas that read something of schema egret, or a view that does: they go with it.
WITH RECURSIVE lost(class, object) AS (
    (
        SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::oid, c.oid
        FROM pg_catalog.pg_class c
        WHERE c.relnamespace = pg_catalog.to_regnamespace('egret')
        UNION ALL
        SELECT 'pg_catalog.pg_proc'::pg_catalog.regclass::oid, p.oid
        FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = pg_catalog.to_regnamespace('egret')
    )
    UNION
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::oid, r.ev_class
    FROM lost
    JOIN pg_catalog.pg_depend d ON d.refclassid = lost.class AND d.refobjid = lost.object
    JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
    WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
)
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
FROM lost
JOIN pg_catalog.pg_class c ON c.oid = lost.object
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE lost.class = 'pg_catalog.pg_class'::pg_catalog.regclass AND n.nspname <> 'egret'
ORDER BY 1
