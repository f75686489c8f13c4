-- A search_path that the user has given the role stays, unless it names the schema of the role.
DO $do$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_db_role_setting AS setting
        CROSS JOIN LATERAL pg_catalog.unnest(setting.setconfig) AS entry (text)
        WHERE setting.setrole = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
          AND setting.setdatabase = 0 AND entry.text LIKE 'search_path=%' AND pg_catalog.strpos(entry.text, '$user') = 0
    ) THEN
        EXECUTE pg_catalog.format('ALTER ROLE %I SET search_path = public', current_user);
    END IF;
    -- Dumps of databases with views name the role that these belong to.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'egret_views') THEN
        CREATE ROLE egret_views NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS;
    END IF;
END
$do$
