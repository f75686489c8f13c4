-- Views in mode immediate are exact or refuse to be read.

-- Of a table that a view in mode immediate reads: the columns that matter to it (a change of others does not), and the triggers that
-- tell it of changes.
ALTER TABLE egret.view_capture ADD COLUMN columns name[];
ALTER TABLE egret.view_capture ADD COLUMN triggers name[];

-- What of the catalogue decides whether the triggers of view $1, in mode immediate, tell it of every change of its tables: these and
-- their partitions, the columns that matter, the triggers, and the plain views that it reads. A change writes a row version with a
-- later xmin, so number and sum of these differ after it, also if it was taken back. Files are left out: TRUNCATE fires triggers, and
-- VACUUM FULL and CLUSTER change no row. It is called for every query of the view and before every statement that changes its tables.
CREATE FUNCTION egret.immediate_stamp(view bigint) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    capture record;
    inlined oid[] := (SELECT kept.inlined FROM egret.view AS kept WHERE kept.id = view);
    members oid[] := '{}';
    columns name[] := '{}';
    triggers name[] := '{}';
    level oid[];
BEGIN
    FOR capture IN
        SELECT own.relation, own.columns, own.triggers
        FROM egret.view_capture AS own
        WHERE own.id IN (SELECT read.capture FROM egret.view_table AS read WHERE read.view = immediate_stamp.view)
        ORDER BY own.id
    LOOP
        members := members || capture.relation;
        columns := columns || capture.columns;
        triggers := triggers || capture.triggers;
    END LOOP;
    level := members;
    LOOP
        level := ARRAY(SELECT part.inhrelid FROM pg_inherits AS part WHERE part.inhparent = ANY (level) ORDER BY part.inhrelid);
        EXIT WHEN cardinality(level) = 0;
        members := members || level;
    END LOOP;
    RETURN (
        SELECT concat_ws('|', array_to_string(members, ','),
            -- A crash empties an unlogged table, and no trigger fires.
            CASE WHEN count(*) FILTER (WHERE class.relpersistence = 'u') > 0 THEN egret.view_incarnation() END,
            count(*), sum(class.oid::bigint) FILTER (WHERE class.relhassubclass), sum(class.oid::bigint) FILTER (WHERE class.relrowsecurity),
            (SELECT concat(count(*), '+', sum(version::text::bigint))
             FROM (
                SELECT attribute.xmin FROM pg_attribute AS attribute
                WHERE attribute.attrelid = ANY (members) AND attribute.attname = ANY (columns)
                UNION ALL
                SELECT definition.xmin FROM pg_attrdef AS definition
                WHERE definition.adrelid = ANY (members) AND EXISTS (
                    SELECT FROM pg_attribute AS computed
                    WHERE computed.attrelid = definition.adrelid AND computed.attnum = definition.adnum
                      AND computed.attgenerated <> '' AND computed.attname = ANY (columns))
                UNION ALL
                SELECT above.xmin FROM pg_inherits AS above WHERE above.inhrelid = ANY (members)
                UNION ALL
                SELECT fired.xmin FROM pg_trigger AS fired
                WHERE fired.tgrelid = ANY (members) AND fired.tgname = ANY (triggers)
                UNION ALL
                SELECT rule.xmin FROM pg_rewrite AS rule WHERE rule.ev_class = ANY (inlined)
             ) AS versions (version)))
        FROM pg_class AS class
        WHERE class.oid = ANY (members)
    );
END
$$;
COMMENT ON FUNCTION egret.immediate_stamp IS 'What decides whether every change of its tables is told to a view in mode immediate.';

-- Whether view $1, in mode immediate, is maintained by every statement that changes its tables. Its stamp has the place (see
-- egret.view_place) and what egret.immediate_stamp said when it was computed; the place alone while it is claimed to be computed anew.
CREATE FUNCTION egret.view_is_live(view bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN coalesce((
        SELECT kept.snapshot IS NOT NULL AND kept.state <> 'suspended'
               AND kept.stamp = concat(split_part(kept.stamp, '/', 1), '/', here.oid, '/', kept.tableoid, ';',
                                       egret.immediate_stamp(kept.id))
        FROM egret.view AS kept
        JOIN pg_database AS here ON here.datname = current_database()
        WHERE kept.id = view_is_live.view), false);
END
$$;
COMMENT ON FUNCTION egret.view_is_live IS 'Whether a view in mode immediate is maintained within the transactions that write.';

-- Part of what users read of view $1 in mode immediate: an error where its rows are not those of its query.
CREATE FUNCTION egret.require_live_view(view bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    kept record;
    is_within boolean;
BEGIN
    IF egret.view_is_live(view) THEN
        -- A session that has not written does not read the unlogged table, which a standby refuses.
        IF pg_current_xact_id_if_assigned() IS NULL THEN
            RETURN true;
        END IF;
        SELECT step.open > 0 INTO is_within FROM egret.view_statement AS step
        WHERE step.view = require_live_view.view AND step.xid = pg_current_xact_id_if_assigned()
        ORDER BY step.id DESC LIMIT 1;
        IF is_within IS NOT TRUE THEN
            RETURN true;
        END IF;
    END IF;
    SELECT format('%I.%I', named.schema, named.name) AS name, named.state INTO kept
    FROM egret.view AS named WHERE named.id = require_live_view.view;
    IF is_within THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('view %s is read within a statement that changes its tables', kept.name),
            HINT = 'It is up to date when the statement has ended: read it then, not in a trigger or function of the statement.';
    ELSIF kept.state = 'suspended' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('view %s is suspended, and its tables may have changed since', kept.name),
            HINT = format('Run: egret view alter %s --resume', kept.name);
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
        MESSAGE = format('view %s is being computed anew, and its rows are not those of its query', coalesce(kept.name, view::text)),
        HINT = format('Try again in a new transaction: Egret computes it when writers of its tables have ended. '
                      'If that does not help, see whether Egret runs, and what this says: egret view show %s', kept.name);
END
$$;
COMMENT ON FUNCTION egret.require_live_view IS 'Raises an error where a view in mode immediate is not what its query says.';
-- Views have the rights of their readers where they call functions.
GRANT EXECUTE ON FUNCTION egret.require_live_view(bigint), egret.view_is_live(bigint), egret.immediate_stamp(bigint) TO PUBLIC;

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
                    AND kept.clock IS NULL AND waiting_changes(kept.id) = 0
                    AND (kept.mode <> 'immediate' OR view_is_live(kept.id)))
    INTO is_current
    FROM read JOIN egret.view AS kept ON kept.id = read.view;
    -- One that is in mode immediate and not current is being computed anew.
    state := CASE WHEN named.mode = 'immediate' AND named.state = 'active' AND NOT is_current THEN 'new' ELSE named.state END;
    fresh_at := CASE WHEN is_current THEN clock_timestamp() ELSE named.fresh_at END;
    behind := clock_timestamp() - fresh_at;
    snapshot := CASE WHEN named.mode = 'immediate' AND is_current THEN pg_current_snapshot() ELSE named.snapshot END;
    -- An error may quote rows that the view does not show.
    reason := (SELECT named.reason FROM pg_roles AS own WHERE own.rolname = named.owner AND pg_has_role(asker, own.oid, 'MEMBER'));
END
$$;
