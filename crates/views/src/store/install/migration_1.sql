-- Views that are kept fresh, and whose changes are recorded for them.

CREATE TABLE egret.view (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schema name NOT NULL,
    name name NOT NULL,
    -- As the user wrote it, and with every name resolved.
    query text NOT NULL,
    definition text NOT NULL,
    -- The plain views that it reads, directly or through others.
    inlined oid[] NOT NULL DEFAULT '{}',
    -- The settings of the session that made it, with which it is computed for ever.
    settings text NOT NULL DEFAULT '',
    -- Whose rights its query has.
    owner name NOT NULL DEFAULT current_user,
    -- 'auto', 'incremental', 'full' or 'immediate'.
    mode text NOT NULL DEFAULT 'auto',
    -- Lists of columns of which its storage has indexes.
    indexes text NOT NULL DEFAULT '[]',
    -- A duration, a cron expression or 'manual'; null: when a view that reads it is.
    schedule text,
    -- The tables of its stages: another Egret that would make others computes it anew.
    shape text NOT NULL DEFAULT '',
    -- 'new', 'active', 'failing' or 'suspended', and why.
    state text NOT NULL DEFAULT 'new',
    reason text,
    failures integer NOT NULL DEFAULT 0,
    -- How far it has come; null until it is filled, and when it is to be computed anew.
    snapshot pg_snapshot,
    stamp text,
    -- When it was known to be up to date last.
    fresh_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (schema, name)
);
COMMENT ON TABLE egret.view IS 'Views that Egret keeps fresh.';

CREATE TABLE egret.view_capture (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relation oid NOT NULL,
    -- The view that alone reads them, within the transactions that write; null: they wait for all views.
    view bigint,
    UNIQUE NULLS NOT DISTINCT (relation, view)
);
COMMENT ON TABLE egret.view_capture IS 'Tables whose changes are recorded, in egret.changes_<id>.';

CREATE TABLE egret.view_table (
    view bigint NOT NULL REFERENCES egret.view ON DELETE CASCADE,
    place integer NOT NULL,
    -- As the query names it.
    name text NOT NULL,
    -- The columns that it needs, with their numbers: one that has the name of another is not that one.
    columns text NOT NULL DEFAULT '',
    -- One of the two.
    capture bigint REFERENCES egret.view_capture,
    reads bigint REFERENCES egret.view,
    PRIMARY KEY (view, place),
    CHECK (num_nonnulls(capture, reads) = 1)
);
CREATE INDEX ON egret.view_table (capture);
CREATE INDEX ON egret.view_table (reads);
COMMENT ON TABLE egret.view_table IS 'The tables and views that a view reads.';

-- Of views that are kept fresh within the transactions that write: how many statements of a transaction have begun and are not
-- done, after each step. It is of no use after the transaction.
CREATE UNLOGGED TABLE egret.view_statement (
    view bigint NOT NULL,
    xid xid8 NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    open integer NOT NULL,
    -- Whether changes are recorded that were not applied.
    has_pending boolean NOT NULL
);
CREATE INDEX ON egret.view_statement (view, xid, id);
COMMENT ON TABLE egret.view_statement IS 'Steps of statements that write to what views read that are kept fresh at once.';

CREATE TABLE egret.view_refresh (
    view bigint NOT NULL REFERENCES egret.view ON DELETE CASCADE,
    at timestamptz NOT NULL,
    -- 'incremental', 'full' or 'failed'.
    outcome text NOT NULL,
    why text NOT NULL,
    snapshot text NOT NULL,
    changes bigint NOT NULL,
    added bigint NOT NULL,
    changed bigint NOT NULL,
    removed bigint NOT NULL,
    took_ms float8 NOT NULL,
    waited_ms float8 NOT NULL,
    applied_ms float8 NOT NULL,
    error text
);
CREATE INDEX ON egret.view_refresh (view, at);
COMMENT ON TABLE egret.view_refresh IS 'The latest refreshes of each view that did something.';

-- What statements of views need of a server that has not got it.
DO $$
BEGIN
    IF current_setting('server_version_num')::int < 160000 THEN
        CREATE FUNCTION egret.any_value_step(anyelement, anyelement) RETURNS anyelement
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT $1';
        CREATE AGGREGATE egret.any_value(anyelement) (SFUNC = egret.any_value_step, STYPE = anyelement);
        -- Whoever owns a view calls it, whatever the privileges are that functions begin with.
        GRANT EXECUTE ON FUNCTION egret.any_value(anyelement), egret.any_value_step(anyelement, anyelement) TO PUBLIC;
    END IF;
END
$$;

CREATE FUNCTION egret.view_place() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN pg_catalog.format(
        '%s/%s/%s',
        (SELECT system_identifier FROM pg_catalog.pg_control_system()),
        (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()),
        'egret.view'::pg_catalog.regclass::oid);
END
$$;
COMMENT ON FUNCTION egret.view_place IS
    'Where this is: the server, the database, and the table of views, which is another in a database that was restored.';

CREATE FUNCTION egret.waiting_changes(view bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    record_id bigint;
    reached pg_snapshot;
    waiting bigint;
    total bigint := 0;
BEGIN
    FOR record_id, reached IN
        SELECT read.capture, kept.snapshot
        FROM egret.view_table AS read
        JOIN egret.view AS kept ON kept.id = read.view
        WHERE read.view = waiting_changes.view AND read.capture IS NOT NULL AND kept.snapshot IS NOT NULL
        GROUP BY read.capture, kept.id
    LOOP
        EXECUTE format('SELECT count(*) FROM egret.changes_%s WHERE NOT pg_visible_in_snapshot(egret_xid, $1)', record_id)
            INTO waiting USING reached;
        total := total + waiting;
    END LOOP;
    RETURN total;
END
$$;
COMMENT ON FUNCTION egret.waiting_changes IS 'Rows of changes that a view has not seen yet.';
