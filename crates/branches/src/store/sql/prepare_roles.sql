DO $prepare$
DECLARE
    found record;
    granted_by text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'egret_branch') THEN
        CREATE ROLE egret_branch;
    END IF;
    ALTER ROLE egret_branch LOGIN CREATEDB NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS
        CONNECTION LIMIT -1 VALID UNTIL 'infinity';

    -- From 16 on a role with CREATEROLE administers the roles it has made and no other one. Before, it
    -- could give itself every role that is no superuser, those that run programs included.
    IF current_setting('server_version_num')::int >= 160000 THEN
        ALTER ROLE egret_branch CREATEROLE;
    END IF;

    -- Role 10 is the bootstrap superuser, which cannot be demoted.
    FOR found IN SELECT rolname FROM pg_roles WHERE oid <> 10 AND rolname !~ '^pg_' LOOP
        IF found.rolname <> 'egret_branch' THEN
            EXECUTE format('ALTER ROLE %I NOSUPERUSER NOCREATEROLE NOREPLICATION', found.rolname);
        END IF;
    END LOOP;
    FOR found IN SELECT rolname FROM pg_authid WHERE rolpassword IS NOT NULL LOOP
        EXECUTE format('ALTER ROLE %I PASSWORD NULL', found.rolname);
    END LOOP;

    -- Membership that reaches the host, the network or the superuser.
    FOR found IN
        SELECT granted.rolname AS role, member.rolname AS member, grantor.rolname AS grantor
        FROM pg_auth_members
        JOIN pg_roles AS granted ON granted.oid = roleid
        JOIN pg_roles AS member ON member.oid = pg_auth_members.member
        LEFT JOIN pg_roles AS grantor ON grantor.oid = pg_auth_members.grantor
        WHERE granted.oid = 10 OR granted.rolname IN (
            'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files',
            'pg_create_subscription')
    LOOP
        granted_by := '';
        IF current_setting('server_version_num')::int >= 160000 AND found.grantor IS NOT NULL THEN
            granted_by := format(' GRANTED BY %I', found.grantor);
        END IF;
        EXECUTE format('REVOKE %I FROM %I%s CASCADE', found.role, found.member, granted_by);
    END LOOP;

    -- ALTER SYSTEM and settings of the superuser that were granted one by one.
    FOR found IN
        SELECT parname, grantee FROM pg_parameter_acl CROSS JOIN LATERAL aclexplode(paracl)
        WHERE grantee <> 10
    LOOP
        EXECUTE format('REVOKE ALL ON PARAMETER %s FROM %s', found.parname,
                       CASE WHEN found.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(found.grantee)) END);
    END LOOP;

    FOR found IN
        SELECT rolname FROM pg_roles
        WHERE oid >= 16384 AND rolname <> 'egret_branch' AND rolname !~ '^pg_'
          AND NOT pg_has_role(oid, 'egret_branch', 'MEMBER')
    LOOP
        EXECUTE format('GRANT %I TO egret_branch', found.rolname);
    END LOOP;
    GRANT pg_monitor, pg_checkpoint, pg_signal_backend TO egret_branch;
END
$prepare$;
