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
)
SELECT queue, key::text, payload, is_json, priority::integer, ordering_key,
       coalesce(greatest(extract(epoch FROM run_at) * 1000, 0), 0)::bigint AS run_at_ms,
       max_attempts, timeout_ms, unique_key, unique_window_ms, tags, metadata::text, callback_url, traceparent
FROM fitting JOIN egret.outbox USING (queue, key)
WHERE before < $3::bigint
ORDER BY key
