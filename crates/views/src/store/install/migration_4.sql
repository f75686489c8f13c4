-- Tables for changes that a crash of the server empties, and how that is noticed; which of two is written to.

-- Whether a crash takes what is recorded for its views. What one view alone reads is of no use after the transaction anyway.
ALTER TABLE egret.view_capture ADD COLUMN is_unlogged boolean NOT NULL DEFAULT false;

-- The segment that is written to: 1 is egret.changes_<id>, 2 is egret.changes_<id>_second, which only tables have to which much is written.
ALTER TABLE egret.view_capture ADD COLUMN segment smallint NOT NULL DEFAULT 1;

-- A value that is there for as long as what unlogged tables have: a crash of the server and the promotion of a standby take
-- both away, a clean restart keeps both.
CREATE UNLOGGED TABLE egret.view_incarnation (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    incarnation uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid()
);
COMMENT ON TABLE egret.view_incarnation IS 'Tells whether what is recorded in unlogged tables is still there.';

-- That value; while there is none, never the same twice. Whoever does not call it does not read an unlogged table, which a standby refuses.
CREATE FUNCTION egret.view_incarnation() RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT incarnation FROM egret.view_incarnation), pg_catalog.gen_random_uuid());
END
$$;
COMMENT ON FUNCTION egret.view_incarnation IS 'What changes when the server has lost what unlogged tables had.';

CREATE FUNCTION egret.changes_lost(stamp text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    -- As standing.sql writes it: after the timeline, where a view reads such tables.
    incarnation text := coalesce(split_part(split_part(stamp, ';', 2), '/', 2), '');
BEGIN
    IF incarnation = '' THEN
        RETURN false;
    END IF;
    RETURN incarnation <> view_incarnation();
END
$$;
COMMENT ON FUNCTION egret.changes_lost IS 'Whether changes were lost that a view with this stamp had not seen: it is computed anew.';

CREATE OR REPLACE FUNCTION egret.freshness(
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
    SELECT bool_and(kept.snapshot IS NOT NULL AND kept.stamp LIKE view_place() || ';%' AND NOT changes_lost(kept.stamp)
                    AND waiting_changes(kept.id) = 0)
    INTO is_current
    FROM read JOIN egret.view AS kept ON kept.id = read.view;
    state := named.state;
    fresh_at := CASE WHEN is_current THEN clock_timestamp() ELSE named.fresh_at END;
    behind := clock_timestamp() - fresh_at;
    snapshot := CASE WHEN named.mode = 'immediate' AND is_current THEN pg_current_snapshot() ELSE named.snapshot END;
    reason := named.reason;
END
$$;
