-- Bounds of what is asked for from SQL: its length, and how many requests of one role wait. What a request failed of is told to those
-- who can act as the role that it is of.

-- What an earlier version took that is too long now is not done.
UPDATE egret.view_request
SET query = NULL, definition = NULL, settings = NULL, mode = NULL, schedule = NULL,
    done_at = coalesce(done_at, pg_catalog.clock_timestamp()), error = 'the request is longer than it may be'
WHERE what NOT IN ('create', 'drop', 'refresh') OR octet_length(query) > 262144 OR octet_length(definition) > 1048576
   OR octet_length(settings) > 4096 OR octet_length(mode) > 64 OR octet_length(schedule) > 256 OR octet_length(error) > 8192;
UPDATE egret.view_request SET what = 'refresh' WHERE what NOT IN ('create', 'drop', 'refresh');

ALTER TABLE egret.view_request
    ADD CONSTRAINT view_request_what CHECK (what IN ('create', 'drop', 'refresh')),
    ADD CONSTRAINT view_request_query CHECK (octet_length(query) <= 262144),
    ADD CONSTRAINT view_request_definition CHECK (octet_length(definition) <= 1048576),
    ADD CONSTRAINT view_request_settings CHECK (octet_length(settings) <= 4096),
    ADD CONSTRAINT view_request_mode CHECK (octet_length(mode) <= 64),
    ADD CONSTRAINT view_request_schedule CHECK (octet_length(schedule) <= 256),
    ADD CONSTRAINT view_request_error CHECK (octet_length(error) <= 8192);
CREATE INDEX ON egret.view_request (role, id);

CREATE OR REPLACE FUNCTION egret.request_view(
    what text, name text[], query text, definition text, mode text, schedule text, role name
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    request bigint;
    owner name;
    waiting_max CONSTANT bigint := 1000;
    waiting_bytes_max CONSTANT bigint := 16777216;
    waiting bigint;
    waiting_bytes bigint;
    -- Who asks, after SET ROLE too: this function runs as another.
    asker name := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
    IF NOT pg_has_role(asker, request_view.role, 'MEMBER') THEN
        RAISE EXCEPTION '% cannot act as %', asker, request_view.role;
    END IF;
    -- A longer name would be cut off, and be another one.
    IF cardinality(request_view.name) IS DISTINCT FROM 2 OR request_view.name[1] IS NULL OR request_view.name[2] IS NULL
       OR octet_length(request_view.name[1]) NOT BETWEEN 1 AND 63 OR octet_length(request_view.name[2]) NOT BETWEEN 1 AND 63 THEN
        RAISE EXCEPTION 'a view has a schema and a name, each of 1 to 63 bytes' USING ERRCODE = 'invalid_name';
    END IF;
    IF octet_length(request_view.query) > 262144 THEN
        RAISE EXCEPTION 'the query has % bytes, and may have 262144', octet_length(request_view.query)
            USING ERRCODE = 'program_limit_exceeded';
    ELSIF octet_length(request_view.definition) > 1048576 THEN
        RAISE EXCEPTION 'the query with every name resolved has % bytes, and may have 1048576', octet_length(request_view.definition)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    -- Requests that others have not committed yet are not seen: a role exceeds the bound by what its open transactions hold.
    SELECT count(*), coalesce(sum(octet_length(kept.query) + coalesce(octet_length(kept.definition), 0)), 0)
    INTO waiting, waiting_bytes
    FROM egret.view_request AS kept WHERE kept.done_at IS NULL AND kept.role = request_view.role;
    IF waiting >= waiting_max OR waiting_bytes >= waiting_bytes_max THEN
        RAISE EXCEPTION '% requests of % with % bytes wait already, and may be % with % bytes',
            waiting, request_view.role, waiting_bytes, waiting_max, waiting_bytes_max
            USING ERRCODE = 'configuration_limit_exceeded', HINT = 'Ask again when Egret has done some of them.';
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

CREATE OR REPLACE FUNCTION egret.request_done(request bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    done egret.view_request;
    asker name := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
    -- One of a role that the caller cannot act as is answered as if there were none.
    SELECT kept.* INTO done
    FROM egret.view_request AS kept
    JOIN pg_roles AS own ON own.rolname = kept.role AND pg_has_role(asker, own.oid, 'MEMBER')
    WHERE kept.id = request;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no request % of a role that % can act as, or it was done long ago', request, asker;
    END IF;
    IF done.error IS NOT NULL THEN
        RAISE EXCEPTION '%', done.error;
    END IF;
    RETURN done.done_at IS NOT NULL;
END
$$;

CREATE OR REPLACE FUNCTION egret.freshness(
    name text, OUT state text, OUT is_current boolean, OUT fresh_at timestamptz, OUT behind interval, OUT snapshot pg_snapshot, OUT reason text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    named egret.view;
    parts text[] := parse_ident(freshness.name);
    asker name := coalesce(nullif(current_setting('role'), 'none'), session_user);
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
    SELECT bool_and(kept.snapshot IS NOT NULL AND kept.stamp LIKE view_place() || ';%' AND NOT changes_lost(kept.stamp)
                    AND kept.clock IS NULL AND waiting_changes(kept.id) = 0)
    INTO is_current
    FROM read JOIN egret.view AS kept ON kept.id = read.view;
    state := named.state;
    fresh_at := CASE WHEN is_current THEN clock_timestamp() ELSE named.fresh_at END;
    behind := clock_timestamp() - fresh_at;
    snapshot := CASE WHEN named.mode = 'immediate' AND is_current THEN pg_current_snapshot() ELSE named.snapshot END;
    -- An error may quote rows that the view does not show.
    reason := (SELECT named.reason FROM pg_roles AS own WHERE own.rolname = named.owner AND pg_has_role(asker, own.oid, 'MEMBER'));
END
$$;
COMMENT ON FUNCTION egret.freshness IS
    'How a view stands: `is_current` when nothing that it reads has changed since its last refresh, and time does not matter to it, else `behind` is the time since that. `reason` is told to those who can act as its owner.';
