-- Sessions of Egret's are known by their application_name. This protects from mistakes, not from a superuser who means it.
CREATE OR REPLACE FUNCTION egret.guard_schema() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
    stray text;
BEGIN
    IF current_setting('application_name') LIKE 'egret/%' THEN
        RETURN;
    END IF;
    SELECT command.object_type || ' ' || command.object_identity INTO stray
    FROM pg_event_trigger_ddl_commands() AS command
    LEFT JOIN pg_class AS class ON command.classid = 'pg_class'::regclass AND class.oid = command.objid
    LEFT JOIN pg_proc AS routine ON command.classid = 'pg_proc'::regclass AND routine.oid = command.objid
    LEFT JOIN pg_extension AS extension ON command.classid = 'pg_extension'::regclass AND extension.oid = command.objid
    WHERE (command.schema_name = 'egret' OR extension.extnamespace = to_regnamespace('egret'))
      AND command.object_type NOT IN ('index', 'trigger', 'rule', 'policy', 'schema')
      AND (command.command_tag !~ '^(ALTER|COMMENT|GRANT|REVOKE|SECURITY LABEL)'
           OR command.command_tag ~ '^ALTER'
              AND coalesce(class.relname::text !~ $re$RELATIONS$re$ AND class.relname::text !~ $re$NUMBERED$re$,
                           routine.proname::text !~ $re$FUNCTIONS$re$ AND routine.proname::text !~ $re$NUMBERED$re$,
                           true))
    LIMIT 1;
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION 'schema egret belongs to Egret: % cannot be made in it', stray
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Name another schema, or SET search_path = public.';
    END IF;
END
$guard$;
REVOKE ALL ON FUNCTION egret.guard_schema() FROM PUBLIC;
DO $do$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger WHERE evtname = 'egret_schema') THEN
        CREATE EVENT TRIGGER egret_schema ON ddl_command_end EXECUTE FUNCTION egret.guard_schema();
    END IF;
    -- Also in sessions whose session_replication_role is replica, such as those of a restore or of a program that replicates.
    -- A trigger that the operator has disabled stays disabled.
    IF EXISTS (SELECT FROM pg_catalog.pg_event_trigger WHERE evtname = 'egret_schema' AND evtenabled IN ('O', 'R')) THEN
        ALTER EVENT TRIGGER egret_schema ENABLE ALWAYS;
    END IF;
END
$do$;
