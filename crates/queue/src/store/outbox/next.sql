-- The oldest rows that are not held, as many as fit: $1 queues held, $2 rows, $3 bytes, $4 bytes of a
-- chain at most, $5 bytes of a payload at most. Beyond $3 bytes goes one row, and beyond as many again one chain.
-- Of the roles $6 only rows for the queues $7 are looked at; of every other role those for its first $8 queues by name.
-- One step of the primary key finds a role, one each of its queues, and one the oldest rows for each of these: rows that
-- are held cost no step of their own. Single rows are looked up by subqueries with a limit or an offset, which the planner
-- does not turn into joins of the whole table.
WITH RECURSIVE writer (name) AS (
    (SELECT enqueued_by FROM egret.outbox ORDER BY enqueued_by LIMIT 1)
    UNION ALL
    SELECT (SELECT later.enqueued_by FROM egret.outbox AS later
            WHERE later.enqueued_by > writer.name ORDER BY later.enqueued_by LIMIT 1)
    FROM writer WHERE writer.name IS NOT NULL
), waiting (enqueued_by, queue, place) AS (
    SELECT writer.name, (SELECT earliest.queue FROM egret.outbox AS earliest
            WHERE earliest.enqueued_by = writer.name ORDER BY earliest.queue LIMIT 1), 1
    FROM writer WHERE writer.name IS NOT NULL AND writer.name <> ALL ($6::text[])
    UNION ALL
    SELECT waiting.enqueued_by, (SELECT later.queue FROM egret.outbox AS later
            WHERE later.enqueued_by = waiting.enqueued_by AND later.queue > waiting.queue
            ORDER BY later.queue LIMIT 1), waiting.place + 1
    FROM waiting WHERE waiting.queue IS NOT NULL AND waiting.place < $8::bigint
), wanted (enqueued_by, queue) AS (
    SELECT enqueued_by, queue FROM waiting WHERE queue IS NOT NULL
    UNION ALL
    SELECT held.name, existing.name COLLATE "C"
    FROM unnest($6::text[]) AS held (name) CROSS JOIN unnest($7::text[]) AS existing (name)
), oldest AS (
    SELECT found.enqueued_by, found.queue, found.key
    FROM wanted CROSS JOIN LATERAL (
        SELECT enqueued_by, queue, key FROM egret.outbox
        WHERE outbox.enqueued_by = wanted.enqueued_by AND outbox.queue = wanted.queue
        ORDER BY key LIMIT $2::bigint) AS found
    WHERE wanted.queue <> ALL ($1::text[])
    ORDER BY found.key LIMIT $2::bigint
), sized AS (
    -- What is withheld takes no memory.
    SELECT found.ctid, found.queue, found.key, found.chain, found.payload_bytes, found.bytes
    FROM oldest CROSS JOIN LATERAL (
        SELECT ctid, queue, key, chain, octet_length(payload) AS payload_bytes,
               CASE WHEN octet_length(payload) > $5::bigint THEN 0 ELSE
                 octet_length(payload)::bigint + octet_length(ordering_key) + octet_length(unique_key)
                 + octet_length(callback_url) + octet_length(traceparent) + octet_length(tags::text)
                 + octet_length(metadata::text) + 16 * cardinality(after)
               END AS bytes
        FROM egret.outbox
        WHERE outbox.enqueued_by = oldest.enqueued_by AND outbox.queue = oldest.queue AND outbox.key = oldest.key
        LIMIT 1) AS found
), fitting AS (
    SELECT ctid, queue, key, chain, payload_bytes,
           sum(bytes) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - bytes AS before
    FROM sized
), picked AS (
    SELECT ctid, queue, key, chain, payload_bytes FROM fitting WHERE before < $3::bigint
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
    SELECT ctid, queue, key, chain, payload_bytes > $5::bigint AS is_withheld, payload_bytes::bigint AS bytes
    FROM picked WHERE chain IS NULL
    UNION ALL
    SELECT member.ctid, member.queue, member.key, taken.chain, taken.chain_bytes > $4::bigint, taken.chain_bytes
    FROM taken CROSS JOIN LATERAL (
        SELECT ctid, queue, key FROM egret.outbox
        WHERE outbox.chain = taken.chain OFFSET 0) AS member
)
SELECT whole.queue, whole.key::text, content.payload, content.is_json, content.priority::integer, content.ordering_key,
       coalesce(greatest(extract(epoch FROM content.run_at) * 1000, 0), 0)::bigint AS run_at_ms, content.max_attempts,
       content.timeout_ms, content.unique_key, content.unique_window_ms, content.tags, content.metadata::text,
       content.callback_url, content.traceparent, whole.chain::text, content.after::text[],
       CASE WHEN whole.is_withheld THEN whole.bytes END AS withheld_bytes, content.enqueued_by, whole.ctid::text
FROM whole LEFT JOIN LATERAL (
     SELECT outbox.* FROM egret.outbox WHERE outbox.ctid = whole.ctid AND NOT whole.is_withheld LIMIT 1) AS content ON true
ORDER BY whole.key
