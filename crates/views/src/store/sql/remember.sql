-- Adds refreshes to the histories of their views.
INSERT INTO egret.view_refresh
    (view, at, outcome, why, snapshot, changes, added, changed, removed, took_ms, waited_ms, applied_ms, error, plans)
SELECT done.view, pg_catalog.to_timestamp(done.at_ms / 1000.0), done.outcome, done.why, done.snapshot,
       done.changes, done.added, done.changed, done.removed, done.took_ms, done.waited_ms, done.applied_ms, done.error, done.plans
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[],
            $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
            $10::float8[], $11::float8[], $12::float8[], $13::text[], $14::text[])
    AS done (view, at_ms, outcome, why, snapshot,
             changes, added, changed, removed,
             took_ms, waited_ms, applied_ms, error, plans)
WHERE EXISTS (SELECT FROM egret.view WHERE id = done.view)
