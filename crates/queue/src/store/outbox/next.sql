-- The oldest rows of the queues that are not held, as many as fit: $1 queues held, $2 rows, $3 bytes.
-- One step of an index per queue finds the queues, and another the oldest rows of each.
WITH RECURSIVE waiting (queue) AS (
    (SELECT queue FROM egret.outbox ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT later.queue FROM egret.outbox AS later
            WHERE later.queue > waiting.queue ORDER BY later.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
), oldest AS (
    SELECT found.queue, found.key, found.bytes
    FROM waiting CROSS JOIN LATERAL (
        SELECT queue, key, octet_length(payload) AS bytes FROM egret.outbox
        WHERE outbox.queue = waiting.queue ORDER BY key LIMIT $2::bigint) AS found
    WHERE waiting.queue IS NOT NULL AND waiting.queue <> ALL ($1::text[])
    ORDER BY found.key LIMIT $2::bigint
), fitting AS (
    SELECT queue, key, sum(bytes) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - bytes AS before
    FROM oldest
), picked AS (
    SELECT queue, key, chain FROM fitting JOIN egret.outbox USING (queue, key) WHERE before < $3::bigint
), whole AS (
    -- A chain is taken as a whole, whatever its size, and whether or not other queues of it are held.
    SELECT queue, key FROM picked WHERE chain IS NULL
    UNION ALL
    SELECT queue, key FROM egret.outbox
    WHERE chain IN (SELECT chain FROM picked WHERE chain IS NOT NULL)
)
SELECT queue, key::text, payload, is_json, priority::integer, ordering_key,
       coalesce(greatest(extract(epoch FROM run_at) * 1000, 0), 0)::bigint AS run_at_ms,
       max_attempts, timeout_ms, unique_key, unique_window_ms, tags, metadata::text, callback_url, traceparent,
       chain::text, after::text[]
FROM whole JOIN egret.outbox USING (queue, key)
ORDER BY key
