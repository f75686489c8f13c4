-- The oldest rows of the queues that are not held, as many as fit: $1 queues held, $2 rows, $3 bytes, $4 bytes of a
-- chain at most, $5 bytes of a payload at most. Beyond $3 bytes goes one row, and beyond as many again one chain.
-- Rows of the roles $6 are left where they are unless they are for the queues $7. With $8 the queues $7 are looked at alone.
-- One step of an index per queue finds the queues, and another the oldest rows of each.
WITH RECURSIVE waiting (queue) AS (
    (SELECT queue FROM egret.outbox WHERE NOT $8::boolean ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT later.queue FROM egret.outbox AS later
            WHERE later.queue > waiting.queue ORDER BY later.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
), wanted (queue) AS (
    SELECT queue FROM waiting WHERE queue IS NOT NULL
    UNION ALL
    SELECT name COLLATE "C" FROM unnest($7::text[]) AS existing (name) WHERE $8::boolean
), oldest AS (
    SELECT found.queue, found.key
    FROM wanted CROSS JOIN LATERAL (
        SELECT queue, key FROM egret.outbox
        WHERE outbox.queue = wanted.queue
              AND (enqueued_by <> ALL ($6::text[]) OR wanted.queue = ANY ($7::text[]))
        ORDER BY key LIMIT $2::bigint) AS found
    WHERE wanted.queue <> ALL ($1::text[])
    ORDER BY found.key LIMIT $2::bigint
), sized AS (
    -- What is withheld takes no memory.
    SELECT queue, key, found.chain, octet_length(found.payload) AS payload_bytes,
           CASE WHEN octet_length(found.payload) > $5::bigint THEN 0 ELSE
             octet_length(found.payload)::bigint + octet_length(found.ordering_key) + octet_length(found.unique_key)
             + octet_length(found.callback_url) + octet_length(found.traceparent) + octet_length(found.tags::text)
             + octet_length(found.metadata::text) + 16 * cardinality(found.after)
           END AS bytes
    FROM oldest JOIN egret.outbox AS found USING (queue, key)
), fitting AS (
    SELECT queue, key, chain, payload_bytes,
           sum(bytes) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - bytes AS before
    FROM sized
), picked AS (
    SELECT queue, key, chain, payload_bytes FROM fitting WHERE before < $3::bigint
), ordered AS (
    SELECT array_agg(chain ORDER BY first) AS chains
    FROM (SELECT chain, min(key::text) AS first FROM picked WHERE chain IS NOT NULL GROUP BY chain) AS found
), taken (place, chain, chain_bytes, rows, bytes) AS (
    -- A chain is taken as a whole, whether or not other queues of it are held. Its rows are counted one chain after
    -- the other, for the few that are picked may have many that are large.
    SELECT 0, NULL::uuid, 0::bigint, 0::bigint, 0::bigint
    UNION ALL
    SELECT taken.place + 1, ordered.chains[taken.place + 1], size.bytes, taken.rows + size.rows,
           taken.bytes + CASE WHEN size.bytes > $4::bigint THEN 0 ELSE size.bytes END
    FROM taken CROSS JOIN ordered CROSS JOIN LATERAL (
        SELECT count(*) AS rows, sum(
             octet_length(member.payload)::bigint + octet_length(member.ordering_key) + octet_length(member.unique_key)
             + octet_length(member.callback_url) + octet_length(member.traceparent) + octet_length(member.tags::text)
             + octet_length(member.metadata::text) + 16 * cardinality(member.after))::bigint AS bytes FROM egret.outbox AS member
        WHERE member.chain = ordered.chains[taken.place + 1]) AS size
    WHERE taken.place < cardinality(ordered.chains) AND taken.rows < $2::bigint AND taken.bytes < $3::bigint
), whole AS (
    SELECT queue, key, chain, payload_bytes > $5::bigint AS is_withheld, payload_bytes::bigint AS bytes
    FROM picked WHERE chain IS NULL
    UNION ALL
    SELECT member.queue, member.key, member.chain, taken.chain_bytes > $4::bigint, taken.chain_bytes
    FROM taken JOIN egret.outbox AS member ON member.chain = taken.chain
)
SELECT whole.queue, whole.key::text, content.payload, content.is_json, content.priority::integer, content.ordering_key,
       coalesce(greatest(extract(epoch FROM content.run_at) * 1000, 0), 0)::bigint AS run_at_ms, content.max_attempts,
       content.timeout_ms, content.unique_key, content.unique_window_ms, content.tags, content.metadata::text,
       content.callback_url, content.traceparent, whole.chain::text, content.after::text[],
       CASE WHEN whole.is_withheld THEN whole.bytes END AS withheld_bytes, content.enqueued_by
FROM whole LEFT JOIN egret.outbox AS content
     ON content.queue = whole.queue AND content.key = whole.key AND NOT whole.is_withheld
ORDER BY whole.key
