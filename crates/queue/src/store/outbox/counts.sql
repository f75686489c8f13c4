-- How many wait, for how long the oldest has (its key begins with its time), how many were refused.
SELECT (SELECT count(*) FROM egret.outbox),
       (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
               - ('x' || lpad(left(replace(min(key::text), '-', ''), 12), 16, '0'))::bit(64)::bigint
        FROM egret.outbox),
       (SELECT count(*) FROM egret.outbox_rejected)
