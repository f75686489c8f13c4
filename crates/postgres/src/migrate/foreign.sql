-- Roles besides this one and superusers that own schema egret or something in it, may create in it, or
-- own the function of a trigger in it.
SELECT pg_catalog.string_agg(DISTINCT other.who, ', ')
FROM (
    SELECT n.nspowner AS role FROM pg_catalog.pg_namespace n WHERE n.nspname = 'egret'
    UNION ALL
    SELECT granted.grantee
    FROM pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) granted
    WHERE n.nspname = 'egret' AND granted.privilege_type = 'CREATE'
    UNION ALL
    SELECT c.relowner
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'egret'
    UNION ALL
    SELECT p.proowner
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'egret'
    UNION ALL
    SELECT p.proowner
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    WHERE n.nspname = 'egret' AND NOT t.tgisinternal
) found
LEFT JOIN pg_catalog.pg_roles r ON r.oid = found.role
CROSS JOIN LATERAL (SELECT COALESCE(r.rolname::text, 'public') AS who) other
-- The role of views is not a foreign role if this session made it.
WHERE COALESCE(r.rolname <> current_user AND NOT r.rolsuper
    AND NOT (r.rolname = 'egret_views' AND NOT r.rolcanlogin
             AND (SELECT me.rolsuper FROM pg_catalog.pg_roles me WHERE me.rolname = current_user)), true)
