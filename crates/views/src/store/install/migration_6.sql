-- Views that change as time passes.

-- The moment at which such a view was computed, as its snapshot says from what; null: time does not matter to it.
ALTER TABLE egret.view ADD COLUMN clock timestamptz;

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
                    AND kept.clock IS NULL AND waiting_changes(kept.id) = 0)
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
    'How a view stands: `is_current` when nothing that it reads has changed since its last refresh, and time does not matter to it, else `behind` is the time since that.';
