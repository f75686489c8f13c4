-- What can be asked for from SQL. It is done by Egret, outside of the transaction that asks: a snapshot does not contain its own
-- transaction.

CREATE TABLE egret.view_request (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- 'create', 'drop' or 'refresh'.
    what text NOT NULL,
    schema name NOT NULL,
    name name NOT NULL,
    query text,
    definition text,
    settings text,
    mode text,
    schedule text,
    -- The role that asked.
    role name NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at timestamptz,
    -- What went wrong.
    error text
);
CREATE INDEX ON egret.view_request (id) WHERE done_at IS NULL;
COMMENT ON TABLE egret.view_request IS 'What was asked for by egret.create_view, egret.drop_view and egret.refresh.';

-- The schema and the name that a text says: the first schema of the search path, other than this one, where it says none.
CREATE FUNCTION egret.view_name(text) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts text[] := pg_catalog.parse_ident($1);
BEGIN
    IF pg_catalog.cardinality(parts) > 2 THEN
        RAISE EXCEPTION '% is no name of a view: it has more than a schema and a name', $1;
    END IF;
    IF pg_catalog.cardinality(parts) = 1 THEN
        parts := ARRAY[coalesce(
            (SELECT named.schema FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) AS named (schema)
             WHERE named.schema <> 'egret' LIMIT 1), 'public'), parts[1]];
    END IF;
    RETURN parts;
END
$$;

-- Takes a request of a role that the caller can be.
CREATE FUNCTION egret.request_view(
    what text, name text[], query text, definition text, mode text, schedule text, role name
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    request bigint;
    owner name;
    -- Who asks, after SET ROLE too: this function runs as another.
    asker name := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
    IF NOT pg_has_role(asker, request_view.role, 'MEMBER') THEN
        RAISE EXCEPTION '% cannot act as %', asker, request_view.role;
    END IF;
    SELECT kept.owner INTO owner FROM egret.view AS kept
    WHERE kept.schema = request_view.name[1] AND kept.name = request_view.name[2];
    IF what = 'create' AND FOUND THEN
        RAISE EXCEPTION 'view %.% exists', name[1], name[2];
    ELSIF what <> 'create' AND NOT FOUND THEN
        RAISE EXCEPTION 'view %.% does not exist', name[1], name[2];
    ELSIF what <> 'create' AND NOT pg_has_role(request_view.role, owner, 'MEMBER') THEN
        RAISE EXCEPTION 'view %.% is of %', name[1], name[2], owner;
    END IF;
    INSERT INTO egret.view_request (what, schema, name, query, definition, settings, mode, schedule, role)
    VALUES (request_view.what, request_view.name[1], request_view.name[2], request_view.query, request_view.definition,
            egret.view_settings(), request_view.mode, request_view.schedule, request_view.role)
    RETURNING id INTO request;
    RETURN request;
END
$$;

-- The settings that values of expressions may depend on, as statements.
CREATE FUNCTION egret.view_settings() RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.string_agg(
               pg_catalog.format('SET LOCAL %I = %L', setting.name,
                   -- Floats are told apart by what they look like: with all digits.
                   CASE setting.name WHEN 'extra_float_digits' THEN '1' ELSE pg_catalog.current_setting(setting.name) END),
               '; ' ORDER BY setting.name)
    FROM pg_catalog.unnest(ARRAY[
        'TimeZone', 'DateStyle', 'IntervalStyle', 'extra_float_digits', 'bytea_output', 'lc_monetary', 'lc_numeric',
        'lc_time', 'default_text_search_config', 'xmlbinary', 'xmloption']) AS setting (name)
$$;

CREATE FUNCTION egret.create_view(name text, query text, lag text DEFAULT NULL, mode text DEFAULT 'auto') RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    before text := pg_catalog.current_setting('search_path');
    parts text[] := egret.view_name(name);
    definition text;
BEGIN
    IF NOT pg_catalog.has_schema_privilege(parts[1], 'CREATE') THEN
        RAISE EXCEPTION '% may not make a view in schema %', current_user, parts[1];
    END IF;
    EXECUTE 'CREATE TEMPORARY VIEW egret_asked AS ' || query;
    PERFORM pg_catalog.set_config('search_path', '', true);
    definition := pg_catalog.pg_get_viewdef('pg_temp.egret_asked'::pg_catalog.regclass);
    PERFORM pg_catalog.set_config('search_path', before, true);
    DROP VIEW pg_temp.egret_asked;
    RETURN egret.request_view('create', parts, query, pg_catalog.rtrim(definition, E'; \n'), mode, lag, current_user);
END
$$;
COMMENT ON FUNCTION egret.create_view IS
    'Asks for a view that Egret keeps fresh; the query has the rights of who asks. Returns the number of the request in egret.view_request.';

CREATE FUNCTION egret.drop_view(name text) RETURNS bigint
LANGUAGE sql AS $$
    SELECT egret.request_view('drop', egret.view_name(name), NULL, NULL, NULL, NULL, current_user)
$$;
COMMENT ON FUNCTION egret.drop_view IS 'Asks Egret to drop a view. Returns the number of the request in egret.view_request.';

CREATE FUNCTION egret.refresh(name text) RETURNS bigint
LANGUAGE sql AS $$
    SELECT egret.request_view('refresh', egret.view_name(name), NULL, NULL, NULL, NULL, current_user)
$$;
COMMENT ON FUNCTION egret.refresh IS
    'Asks Egret to bring a view up to date, after the transaction that asks. Returns the number of the request in egret.view_request.';

CREATE FUNCTION egret.request_done(request bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    done egret.view_request;
BEGIN
    SELECT * INTO done FROM egret.view_request WHERE id = request;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no request %, or it was done long ago', request;
    END IF;
    IF done.error IS NOT NULL THEN
        RAISE EXCEPTION '%', done.error;
    END IF;
    RETURN done.done_at IS NOT NULL;
END
$$;
COMMENT ON FUNCTION egret.request_done IS 'Whether a request is done; an error when it failed.';

CREATE FUNCTION egret.freshness(
    name text, OUT state text, OUT is_current boolean, OUT fresh_at timestamptz, OUT behind interval, OUT snapshot pg_snapshot, OUT reason text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    named egret.view;
    parts text[] := parse_ident(freshness.name);
BEGIN
    SELECT * INTO named FROM egret.view AS kept
    WHERE kept.name = parts[cardinality(parts)] AND kept.schema = CASE cardinality(parts) WHEN 1 THEN 'public' ELSE parts[1] END;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'view % does not exist', freshness.name;
    END IF;
    WITH RECURSIVE read (view) AS (
        SELECT named.id
        UNION
        SELECT below.reads FROM read JOIN egret.view_table AS below ON below.view = read.view WHERE below.reads IS NOT NULL
    )
    -- A snapshot of another place says nothing here, nor does that of a view that is being computed anew.
    SELECT bool_and(kept.snapshot IS NOT NULL AND kept.stamp LIKE view_place() || ';%' AND waiting_changes(kept.id) = 0)
    INTO is_current
    FROM read JOIN egret.view AS kept ON kept.id = read.view;
    state := named.state;
    fresh_at := CASE WHEN is_current THEN clock_timestamp() ELSE named.fresh_at END;
    behind := clock_timestamp() - fresh_at;
    snapshot := CASE WHEN named.mode = 'immediate' AND is_current THEN pg_current_snapshot() ELSE named.snapshot END;
    reason := named.reason;
END
$$;
COMMENT ON FUNCTION egret.freshness IS
    'How a view stands: `is_current` when nothing that it reads has changed since its last refresh, else `behind` is the time since that.';

REVOKE ALL ON FUNCTION egret.view_name, egret.request_view, egret.view_settings, egret.create_view, egret.drop_view, egret.refresh,
    egret.request_done, egret.freshness FROM PUBLIC;
