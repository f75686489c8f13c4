-- What statements of views need of a server that has not got it.
DO $$
BEGIN
    IF current_setting('server_version_num')::int < 160000 THEN
        CREATE FUNCTION egret.any_value_step(anyelement, anyelement) RETURNS anyelement
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT $1';
        CREATE AGGREGATE egret.any_value(anyelement) (SFUNC = egret.any_value_step, STYPE = anyelement);
    END IF;
END
$$;
