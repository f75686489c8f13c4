-- Tasks that committed transactions hand over to Egret's queue, and the functions that write them.

-- Keys are UUIDs of version 7 (RFC 9562), so that they sort by the time at which they were made.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE FUNCTION egret.outbox_key() RETURNS uuid
        LANGUAGE sql VOLATILE PARALLEL SAFE
        AS 'SELECT pg_catalog.uuidv7()';
    ELSE
        -- Milliseconds in 48 bits, the version, the fraction of the millisecond in 12 bits; the rest is
        -- the random half of a UUID of version 4, whose variant is the same.
        CREATE FUNCTION egret.outbox_key() RETURNS uuid
        LANGUAGE sql VOLATILE PARALLEL SAFE
        AS 'SELECT pg_catalog.encode(
                pg_catalog.int8send((us / 1000 << 16) | 28672 | (us % 1000 * 4096 / 1000))
                || pg_catalog.substring(pg_catalog.uuid_send(pg_catalog.gen_random_uuid()), 9), ''hex'')::uuid
            FROM (SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint) AS now (us)';
    END IF;
END
$$;

CREATE TABLE egret.outbox (
    queue text COLLATE "C" NOT NULL,
    key uuid NOT NULL DEFAULT egret.outbox_key(),
    payload bytea NOT NULL,
    is_json boolean NOT NULL,
    priority smallint,
    ordering_key text NOT NULL DEFAULT '',
    run_at timestamptz,
    max_attempts integer,
    timeout_ms bigint NOT NULL DEFAULT 0,
    unique_key text NOT NULL DEFAULT '',
    unique_window_ms bigint NOT NULL DEFAULT 0,
    tags text[] NOT NULL DEFAULT '{}',
    metadata jsonb NOT NULL DEFAULT '{}',
    callback_url text NOT NULL DEFAULT '',
    traceparent text NOT NULL DEFAULT '',
    enqueued_by text NOT NULL DEFAULT session_user,
    PRIMARY KEY (queue, key)
) WITH (
    -- Every row is deleted soon, so what counts is how many were, not what part of the table.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000
);
COMMENT ON TABLE egret.outbox IS
    'Tasks of committed transactions that Egret has not taken over yet; it deletes what it has.';

CREATE TABLE egret.outbox_rejected (
    LIKE egret.outbox INCLUDING DEFAULTS,
    code text NOT NULL,
    reason text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (key)
);
COMMENT ON TABLE egret.outbox_rejected IS
    'Tasks that the queue refused for good, and why. `egret queue outbox retry` hands them over again.';

-- What the queue takes; Egret keeps the row as it is configured.
CREATE TABLE egret.outbox_limit (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    payload_bytes_max bigint NOT NULL
);
INSERT INTO egret.outbox_limit (payload_bytes_max) VALUES (1048576);

CREATE FUNCTION egret.outbox_put(
    queue text, payload bytea, is_json boolean, priority integer, ordering_key text,
    run_at timestamptz, delay interval, max_attempts integer, timeout interval, unique_key text,
    unique_window interval, tags text[], metadata jsonb, callback_url text, traceparent text
) RETURNS uuid
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
    decade CONSTANT interval := '3660 days';
    bytes_max bigint;
    named text;
    spelled text;
    span interval;
    made uuid;
BEGIN
    IF queue IS NULL OR queue !~ '^[A-Za-z0-9_.:][A-Za-z0-9_.:-]{0,127}$' THEN
        RAISE EXCEPTION 'egret.enqueue: queue: % is not 1 to 128 letters, digits and -_.:, beginning with none of -',
            pg_catalog.quote_nullable(queue) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'egret.enqueue: payload: it is null'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Give ''null''::jsonb or ''{}'' where there is nothing to say.';
    END IF;
    SELECT payload_bytes_max INTO bytes_max FROM egret.outbox_limit;
    IF pg_catalog.octet_length(payload) > bytes_max THEN
        RAISE EXCEPTION 'egret.enqueue: payload: it has % bytes, but queue.payload_bytes_max is %',
            pg_catalog.octet_length(payload), bytes_max
            USING ERRCODE = 'program_limit_exceeded', HINT = 'Send a reference instead, such as the key of a row.';
    END IF;
    IF priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'egret.enqueue: priority: % is not from 0 to 9', priority
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF max_attempts NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'egret.enqueue: max_attempts: % is not from 1 to 10000', max_attempts
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF run_at IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'egret.enqueue: run_at: it is given beside delay'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give one of them.';
    END IF;
    IF run_at NOT BETWEEN '1970-01-01 00:00:00+00' AND pg_catalog.clock_timestamp() + decade THEN
        RAISE EXCEPTION 'egret.enqueue: run_at: % is not from 1970 to ten years from now', run_at
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Most tasks have none of these, and loops over queries take time.
    IF coalesce(delay, timeout, unique_window) IS NOT NULL THEN
        FOR named, span IN
            VALUES ('delay', delay), ('timeout', timeout), ('unique_window', unique_window)
        LOOP
            IF span NOT BETWEEN interval '0' AND decade THEN
                RAISE EXCEPTION 'egret.enqueue: %: % is not from zero to ten years', named, span
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
        END LOOP;
    END IF;
    IF unique_window IS NOT NULL AND coalesce(unique_key, '') = '' THEN
        RAISE EXCEPTION 'egret.enqueue: unique_window: it is given without unique_key'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF pg_catalog.cardinality(tags) > 64 THEN
        RAISE EXCEPTION 'egret.enqueue: tags: % are given, at most 64 are allowed', pg_catalog.cardinality(tags)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF pg_catalog.array_position(tags, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'egret.enqueue: tags: one of them is null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF metadata IS NOT NULL THEN
        IF pg_catalog.jsonb_typeof(metadata) <> 'object' THEN
            RAISE EXCEPTION 'egret.enqueue: metadata: it is not an object of names and texts'
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF (SELECT pg_catalog.count(*) FROM pg_catalog.jsonb_object_keys(metadata)) > 64 THEN
            RAISE EXCEPTION 'egret.enqueue: metadata: it has more than 64 entries'
                USING ERRCODE = 'program_limit_exceeded';
        END IF;
        SELECT entry.key INTO named FROM pg_catalog.jsonb_each(metadata) AS entry
        WHERE pg_catalog.jsonb_typeof(entry.value) <> 'string' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'egret.enqueue: metadata: the value of % is not a text', pg_catalog.quote_literal(named)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF tags IS NOT NULL OR metadata IS NOT NULL
       OR greatest(pg_catalog.octet_length(ordering_key), pg_catalog.octet_length(unique_key),
                   pg_catalog.octet_length(callback_url), pg_catalog.octet_length(traceparent)) > 1024
    THEN
        FOR named, spelled IN
            SELECT * FROM (VALUES ('ordering_key', ordering_key), ('unique_key', unique_key),
                                  ('callback_url', callback_url), ('traceparent', traceparent)) AS one
            UNION ALL SELECT 'tags', tag FROM pg_catalog.unnest(tags) AS tag
            UNION ALL SELECT 'metadata', entry.key FROM pg_catalog.jsonb_each_text(metadata) AS entry
            UNION ALL SELECT 'metadata', entry.value FROM pg_catalog.jsonb_each_text(metadata) AS entry
        LOOP
            IF pg_catalog.octet_length(spelled) > 1024 THEN
                RAISE EXCEPTION 'egret.enqueue: %: it has % bytes, at most 1024 are allowed',
                    named, pg_catalog.octet_length(spelled) USING ERRCODE = 'program_limit_exceeded';
            END IF;
        END LOOP;
    END IF;
    IF coalesce(callback_url, '') !~ '^($|https?://)' THEN
        RAISE EXCEPTION 'egret.enqueue: callback_url: it must begin with http:// or https://'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO egret.outbox (
        queue, payload, is_json, priority, ordering_key, run_at, max_attempts, timeout_ms, unique_key,
        unique_window_ms, tags, metadata, callback_url, traceparent)
    VALUES (
        queue, payload, is_json, priority, coalesce(ordering_key, ''),
        coalesce(run_at, pg_catalog.clock_timestamp() + delay), max_attempts,
        coalesce(extract(epoch FROM timeout) * 1000, 0)::bigint, coalesce(unique_key, ''),
        coalesce(extract(epoch FROM unique_window) * 1000, 0)::bigint, coalesce(tags, '{}'),
        coalesce(metadata, '{}'), coalesce(callback_url, ''), coalesce(traceparent, ''))
    RETURNING egret.outbox.key INTO made;
    -- PostgreSQL sends one notification for all of a transaction.
    IF pg_catalog.current_setting('egret.outbox_notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_catalog.pg_notify('egret_outbox', '');
    END IF;
    RETURN made;
END
$$;

CREATE FUNCTION egret.enqueue(
    queue text, payload jsonb, priority integer DEFAULT NULL, ordering_key text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_key text DEFAULT NULL, unique_window interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, callback_url text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    RETURN egret.outbox_put(
        queue, pg_catalog.convert_to(payload::text, 'UTF8'), true, priority, ordering_key, run_at, delay,
        max_attempts, timeout, unique_key, unique_window, tags, metadata, callback_url, traceparent);
END
$$;
COMMENT ON FUNCTION egret.enqueue IS
    'Enqueues a task when the transaction commits; returns the key of its row in the outbox.';

-- Under a name of its own: with one name for both, a payload spelled as a literal could be either.
CREATE FUNCTION egret.enqueue_bytes(
    queue text, payload bytea, priority integer DEFAULT NULL, ordering_key text DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, delay interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
    timeout interval DEFAULT NULL, unique_key text DEFAULT NULL, unique_window interval DEFAULT NULL,
    tags text[] DEFAULT NULL, metadata jsonb DEFAULT NULL, callback_url text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    RETURN egret.outbox_put(
        queue, payload, false, priority, ordering_key, run_at, delay,
        max_attempts, timeout, unique_key, unique_window, tags, metadata, callback_url, traceparent);
END
$$;
COMMENT ON FUNCTION egret.enqueue_bytes IS
    'As egret.enqueue, with a payload that is not JSON.';

-- Who may enqueue is granted by name; nobody but the owner reads what others have enqueued.
REVOKE ALL ON egret.outbox, egret.outbox_rejected, egret.outbox_limit FROM PUBLIC;
REVOKE ALL ON FUNCTION egret.outbox_key, egret.outbox_put, egret.enqueue, egret.enqueue_bytes FROM PUBLIC;
