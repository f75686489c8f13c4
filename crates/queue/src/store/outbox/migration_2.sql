-- Chains: rows that wait for earlier ones of their transaction, and are handed over with them as one.

ALTER TABLE egret.outbox
    ADD COLUMN transaction xid8,
    ADD COLUMN chain uuid,
    ADD COLUMN after uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE egret.outbox ALTER COLUMN transaction SET DEFAULT pg_catalog.pg_current_xact_id();
COMMENT ON COLUMN egret.outbox.chain IS
    'The key of a row of the chain, the same in each of them; null where a row is none of a chain.';
ALTER TABLE egret.outbox_rejected
    ADD COLUMN chain uuid,
    ADD COLUMN after uuid[] NOT NULL DEFAULT '{}';
CREATE INDEX outbox_chain ON egret.outbox (chain) WHERE chain IS NOT NULL;

-- Makes the row `made` wait for others: rows of this transaction by their keys, or tasks by their ids.
CREATE FUNCTION egret.outbox_link(in_queue text, made uuid, waits_for uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    members_max CONSTANT bigint := 1000;
    foreign_key uuid;
    chains uuid[];
    root uuid;
    members bigint;
BEGIN
    IF pg_catalog.cardinality(waits_for) > 64 THEN
        RAISE EXCEPTION 'egret.enqueue: after: % are given, at most 64 are allowed', pg_catalog.cardinality(waits_for)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF pg_catalog.array_position(waits_for, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'egret.enqueue: after: one of them is null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    -- The primary key begins with the queue, so each queue is looked through by its own step.
    WITH RECURSIVE queues (name) AS (
        (SELECT queue FROM egret.outbox ORDER BY queue LIMIT 1)
        UNION ALL
        SELECT (SELECT later.queue FROM egret.outbox AS later
                WHERE later.queue > queues.name ORDER BY later.queue LIMIT 1)
        FROM queues WHERE queues.name IS NOT NULL
    ), named AS (
        SELECT found.key, found.chain, found.transaction
        FROM queues CROSS JOIN pg_catalog.unnest(waits_for) AS wanted (key)
        JOIN egret.outbox AS found ON found.queue = queues.name AND found.key = wanted.key
    )
    SELECT pg_catalog.array_agg(DISTINCT coalesce(named.chain, named.key)),
           (pg_catalog.array_agg(named.key) FILTER (
               WHERE named.transaction IS DISTINCT FROM pg_catalog.pg_current_xact_id()))[1]
    INTO chains, foreign_key FROM named;
    IF foreign_key IS NOT NULL THEN
        RAISE EXCEPTION 'egret.enqueue: after: % was enqueued by another transaction', foreign_key
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Enqueue what belongs together in one transaction.';
    END IF;
    root := coalesce(chains[1], made);
    WITH RECURSIVE queues (name) AS (
        (SELECT queue FROM egret.outbox ORDER BY queue LIMIT 1)
        UNION ALL
        SELECT (SELECT later.queue FROM egret.outbox AS later
                WHERE later.queue > queues.name ORDER BY later.queue LIMIT 1)
        FROM queues WHERE queues.name IS NOT NULL
    )
    UPDATE egret.outbox AS member SET chain = root FROM queues
    WHERE member.queue = queues.name AND member.key = ANY (waits_for) AND member.chain IS NULL;
    UPDATE egret.outbox SET chain = root WHERE chain = ANY (chains) AND chain <> root;
    UPDATE egret.outbox SET chain = root, after = waits_for WHERE queue = in_queue AND key = made;
    SELECT pg_catalog.count(*) INTO members FROM egret.outbox WHERE chain = root;
    IF members > members_max THEN
        RAISE EXCEPTION 'egret.enqueue: after: the chain has % tasks, at most % are allowed', members, members_max
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
END
$$;

-- The functions get one more parameter. Roles keep their right to call them, and what depends on the old
-- functions keeps those, under other names.
CREATE TEMPORARY TABLE outbox_grant ON COMMIT DROP AS
    SELECT proname, acl.grantee, acl.is_grantable
    FROM pg_catalog.pg_proc, pg_catalog.aclexplode(proacl) AS acl
    WHERE pronamespace = 'egret'::regnamespace AND proname IN ('enqueue', 'enqueue_bytes')
      AND acl.privilege_type = 'EXECUTE' AND acl.grantee <> proowner;

DO $$
DECLARE
    former regprocedure;
    name text;
BEGIN
    FOR former, name IN
        SELECT oid::regprocedure, proname FROM pg_catalog.pg_proc
        WHERE pronamespace = 'egret'::regnamespace AND proname IN ('enqueue', 'enqueue_bytes')
    LOOP
        BEGIN
            EXECUTE pg_catalog.format('DROP FUNCTION %s', former);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            EXECUTE pg_catalog.format('ALTER FUNCTION %s RENAME TO %I', former, name || '_without_after');
        END;
    END LOOP;
END
$$;

CREATE FUNCTION egret.enqueue(
    queue text, payload jsonb, priority integer DEFAULT NULL, ordering_key text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_key text DEFAULT NULL, unique_window interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, callback_url text DEFAULT NULL,
    traceparent text DEFAULT NULL, after uuid[] DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    made uuid;
BEGIN
    made := egret.outbox_put(
        queue, pg_catalog.convert_to(payload::text, 'UTF8'), true, priority, ordering_key, run_at, delay,
        max_attempts, timeout, unique_key, unique_window, tags, metadata, callback_url, traceparent);
    IF pg_catalog.cardinality(after) > 0 THEN
        PERFORM egret.outbox_link(queue, made, after);
    END IF;
    RETURN made;
END
$$;
COMMENT ON FUNCTION egret.enqueue IS
    'Enqueues a task when the transaction commits; returns the key of its row in the outbox.';

CREATE FUNCTION egret.enqueue_bytes(
    queue text, payload bytea, priority integer DEFAULT NULL, ordering_key text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_key text DEFAULT NULL, unique_window interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, callback_url text DEFAULT NULL,
    traceparent text DEFAULT NULL, after uuid[] DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    made uuid;
BEGIN
    made := egret.outbox_put(
        queue, payload, false, priority, ordering_key, run_at, delay,
        max_attempts, timeout, unique_key, unique_window, tags, metadata, callback_url, traceparent);
    IF pg_catalog.cardinality(after) > 0 THEN
        PERFORM egret.outbox_link(queue, made, after);
    END IF;
    RETURN made;
END
$$;
COMMENT ON FUNCTION egret.enqueue_bytes IS
    'As egret.enqueue, with a payload that is not JSON.';

REVOKE ALL ON FUNCTION egret.outbox_link, egret.enqueue, egret.enqueue_bytes FROM PUBLIC;

DO $$
DECLARE
    name text;
    grantee oid;
    is_grantable boolean;
BEGIN
    FOR name, grantee, is_grantable IN SELECT * FROM pg_temp.outbox_grant LOOP
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION egret.%I TO %s%s', name,
            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
            CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
END
$$;
