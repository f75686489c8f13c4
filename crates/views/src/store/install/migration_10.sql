-- What else than its tables a view depends on does not change unnoticed.

-- Of a view: the functions, operators, types and collations that are not PostgreSQL's own and decide what its query means, directly
-- or through others (see dependencies.sql). It is filled when the view is loaded.
ALTER TABLE egret.view ADD COLUMN depends_on oid[] NOT NULL DEFAULT '{}';

-- Which versions the rows have that the catalogue keeps of objects $1; null if there are none. A change writes a row version with a
-- later xmin, so number and sum of these differ after it, also if it was taken back. Numbers of several catalogues stand in one list:
-- where two are the same, one row too many is watched.
CREATE FUNCTION egret.view_dependency_versions(depends_on oid[]) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    IF cardinality(depends_on) = 0 THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT concat(count(*), '+', sum(version::text::bigint))
        FROM (
            SELECT function.xmin FROM pg_proc AS function WHERE function.oid = ANY (depends_on)
            UNION ALL
            SELECT operator.xmin FROM pg_operator AS operator WHERE operator.oid = ANY (depends_on)
            UNION ALL
            SELECT named.xmin FROM pg_collation AS named WHERE named.oid = ANY (depends_on)
            UNION ALL
            SELECT type.xmin FROM pg_type AS type WHERE type.oid = ANY (depends_on)
            UNION ALL
            SELECT label.xmin FROM pg_enum AS label WHERE label.enumtypid = ANY (depends_on)
            UNION ALL
            SELECT checked.xmin FROM pg_constraint AS checked WHERE checked.contypid = ANY (depends_on)
            UNION ALL
            SELECT field.xmin
            FROM pg_type AS type
            JOIN pg_class AS class ON class.oid = type.typrelid AND class.relkind = 'c'
            JOIN pg_attribute AS field ON field.attrelid = class.oid AND field.attnum > 0
            WHERE type.oid = ANY (depends_on)
            UNION ALL
            SELECT conversion.xmin FROM pg_cast AS conversion
            WHERE conversion.castsource = ANY (depends_on) OR conversion.casttarget = ANY (depends_on)
        ) AS versions (version)
    );
END
$$;
COMMENT ON FUNCTION egret.view_dependency_versions IS 'Versions of functions, operators, types and collations that a view depends on.';
GRANT EXECUTE ON FUNCTION egret.view_dependency_versions(oid[]) TO PUBLIC;

-- In mode immediate, too: see migration 9.
CREATE OR REPLACE FUNCTION egret.immediate_stamp(view bigint) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    capture record;
    inlined oid[] := (SELECT kept.inlined FROM egret.view AS kept WHERE kept.id = view);
    depends_on oid[] := (SELECT kept.depends_on FROM egret.view AS kept WHERE kept.id = view);
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
             ) AS versions (version)),
            CASE WHEN cardinality(depends_on) > 0 THEN egret.view_dependency_versions(depends_on) END)
        FROM pg_class AS class
        WHERE class.oid = ANY (members)
    );
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
                    AND kept.clock IS NULL AND waiting_changes(kept.id) = 0
                    AND CASE WHEN kept.mode = 'immediate' THEN view_is_live(kept.id)
                             ELSE kept.stamp LIKE concat('%', ';' || view_dependency_versions(kept.depends_on)) END)
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
