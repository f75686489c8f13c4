-- Views that are kept fresh, and whose changes are recorded for them.

CREATE TABLE egret.view (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schema name NOT NULL,
    name name NOT NULL,
    -- As the user wrote it, and with every name resolved.
    query text NOT NULL,
    definition text NOT NULL,
    -- The tables of its stages: another Egret that would make others computes it anew.
    shape text NOT NULL,
    -- How far it has come; null until it is filled, and when it is to be computed anew.
    snapshot pg_snapshot,
    stamp text,
    UNIQUE (schema, name)
);
COMMENT ON TABLE egret.view IS 'Views that Egret keeps fresh.';

CREATE TABLE egret.view_capture (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation oid NOT NULL UNIQUE
);
COMMENT ON TABLE egret.view_capture IS 'Tables whose changes are recorded, in egret.changes_<id>.';

CREATE TABLE egret.view_table (
    view bigint NOT NULL REFERENCES egret.view ON DELETE CASCADE,
    place integer NOT NULL,
    capture bigint NOT NULL REFERENCES egret.view_capture,
    PRIMARY KEY (view, place)
);
CREATE INDEX ON egret.view_table (capture);
COMMENT ON TABLE egret.view_table IS 'The tables that a view reads.';

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
