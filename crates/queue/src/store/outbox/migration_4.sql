-- The primary key begins with the role that wrote a row: a step of it finds the rows of one role past any number of rows of
-- others. The column keeps its collation, as it can have no other one while a view of a user reads it.
--
-- While this waits for a transaction that has the table open, every egret.enqueue waits behind it: it gives up soon, and the
-- reader begins again.

SET LOCAL lock_timeout = '2s';
ALTER TABLE egret.outbox DROP CONSTRAINT outbox_pkey, ADD PRIMARY KEY (enqueued_by, queue, key);
SET LOCAL lock_timeout = 0;

-- Makes the row `made` wait for others: rows that its role wrote in this transaction by their keys, or tasks by their ids.
CREATE OR REPLACE FUNCTION egret.outbox_link(in_queue text, made uuid, waits_for uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    members_max CONSTANT bigint := 1000;
    writer CONSTANT text := session_user;
    foreign_key uuid;
    chains uuid[];
    root uuid;
    members bigint;
    bytes bigint;
    bytes_max bigint;
BEGIN
    IF pg_catalog.cardinality(waits_for) > 64 THEN
        RAISE EXCEPTION 'egret.enqueue: after: % are given, at most 64 are allowed', pg_catalog.cardinality(waits_for)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF pg_catalog.array_position(waits_for, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'egret.enqueue: after: one of them is null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    -- One step of the primary key finds each queue of the role, and another one its rows of these keys.
    WITH RECURSIVE queues (name) AS (
        (SELECT earliest.queue FROM egret.outbox AS earliest
         WHERE earliest.enqueued_by = writer ORDER BY earliest.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT later.queue FROM egret.outbox AS later
                WHERE later.enqueued_by = writer AND later.queue > queues.name ORDER BY later.queue LIMIT 1)
        FROM queues WHERE queues.name IS NOT NULL
    ), named AS (
        SELECT found.key, found.chain, found.transaction
        FROM queues CROSS JOIN pg_catalog.unnest(waits_for) AS wanted (key)
        JOIN egret.outbox AS found
             ON found.enqueued_by = writer AND found.queue = queues.name AND found.key = wanted.key
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
        (SELECT earliest.queue FROM egret.outbox AS earliest
         WHERE earliest.enqueued_by = writer ORDER BY earliest.queue LIMIT 1)
        UNION ALL
        SELECT (SELECT later.queue FROM egret.outbox AS later
                WHERE later.enqueued_by = writer AND later.queue > queues.name ORDER BY later.queue LIMIT 1)
        FROM queues WHERE queues.name IS NOT NULL
    )
    UPDATE egret.outbox AS member SET chain = root FROM queues
    WHERE member.enqueued_by = writer AND member.queue = queues.name AND member.key = ANY (waits_for)
          AND member.chain IS NULL;
    UPDATE egret.outbox SET chain = root WHERE chain = ANY (chains) AND chain <> root;
    UPDATE egret.outbox SET chain = root, after = waits_for
    WHERE enqueued_by = writer AND queue = in_queue AND key = made;
    SELECT pg_catalog.count(*), pg_catalog.sum(
               pg_catalog.octet_length(member.payload)::bigint + pg_catalog.octet_length(member.ordering_key)
               + pg_catalog.octet_length(member.unique_key) + pg_catalog.octet_length(member.callback_url)
               + pg_catalog.octet_length(member.traceparent) + pg_catalog.octet_length(member.tags::text)
               + pg_catalog.octet_length(member.metadata::text) + 16 * pg_catalog.cardinality(member.after))::bigint
    INTO members, bytes FROM egret.outbox AS member WHERE member.chain = root;
    IF members > members_max THEN
        RAISE EXCEPTION 'egret.enqueue: after: the chain has % tasks, at most % are allowed', members, members_max
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    SELECT chain_bytes_max INTO bytes_max FROM egret.outbox_limit;
    IF bytes > bytes_max THEN
        RAISE EXCEPTION 'egret.enqueue: after: the chain has % bytes, but queue.chain_bytes_max is %', bytes, bytes_max
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Send references instead, such as keys of rows.';
    END IF;
END
$$;
