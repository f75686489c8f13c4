-- What changes in views with every refresh, kept for those who follow them.

-- For how long change sets of a view are kept; null: it is not followed, and none are. The number of its last change set. The queue
-- that gets a task for each.
ALTER TABLE egret.view ADD COLUMN changes_kept_ms bigint;
ALTER TABLE egret.view ADD COLUMN sequence bigint NOT NULL DEFAULT 0;
ALTER TABLE egret.view ADD COLUMN queue text;

CREATE TABLE egret.view_change_set (
    view bigint NOT NULL REFERENCES egret.view ON DELETE CASCADE,
    -- One more than that of the last, but where following began, or began again: it is no less than the time then, in milliseconds, so
    -- that no number is ever given twice.
    sequence bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    snapshot text NOT NULL,
    -- Why what changed is not told, so that the view is to be read anew; null: it is told.
    reset text,
    -- How many rows of egret.view_change it has, and their bytes.
    changes bigint NOT NULL DEFAULT 0,
    size_bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (view, sequence)
);
COMMENT ON TABLE egret.view_change_set IS 'What refreshes changed in views that are followed: one for each refresh of a view that changed something.';

CREATE TABLE egret.view_change (
    view bigint NOT NULL,
    sequence bigint NOT NULL,
    place bigint NOT NULL,
    -- How many such rows there are more, or fewer.
    weight bigint NOT NULL,
    content json NOT NULL,
    PRIMARY KEY (view, sequence, place),
    FOREIGN KEY (view, sequence) REFERENCES egret.view_change_set ON DELETE CASCADE
);
COMMENT ON TABLE egret.view_change IS 'The rows of change sets, as the view shows them.';

-- Apart from the view, whose row a refresh writes.
CREATE TABLE egret.view_handed_over (
    view bigint PRIMARY KEY REFERENCES egret.view ON DELETE CASCADE,
    sequence bigint NOT NULL
);
COMMENT ON TABLE egret.view_handed_over IS 'Up to which change set views have handed over tasks to their queues.';

CREATE FUNCTION egret.change_sequence(name text) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp AS $$
DECLARE
    named egret.view;
    parts text[] := parse_ident(change_sequence.name);
BEGIN
    SELECT * INTO named FROM egret.view AS kept
    WHERE kept.name = parts[cardinality(parts)] AND kept.schema = CASE cardinality(parts) WHEN 1 THEN 'public' ELSE parts[1] END;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'view % does not exist', change_sequence.name;
    END IF;
    IF named.changes_kept_ms IS NULL THEN
        RAISE EXCEPTION 'view % is not followed: its changes are not kept', change_sequence.name;
    END IF;
    RETURN named.sequence;
END
$$;
COMMENT ON FUNCTION egret.change_sequence IS
    'The number of the last change set of a view that is followed. Asked for in the statement, or in the REPEATABLE READ transaction, that reads the view, it is where to follow it from.';
REVOKE ALL ON FUNCTION egret.change_sequence FROM PUBLIC;
