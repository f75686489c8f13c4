-- The snapshot of this transaction, and how many of views $1 are as far as they were, $2; those that are computed anew have been
-- claimed, and no others were suspended.
SELECT pg_catalog.pg_current_snapshot()::text,
       (SELECT count(*)
        FROM unnest($1::bigint[], $2::text[]) AS read (id, snapshot)
        JOIN egret.view AS kept ON kept.id = read.id
        WHERE kept.state <> 'suspended' AND kept.snapshot IS NOT NULL
          AND (read.snapshot IS NULL OR kept.snapshot::text = read.snapshot))
