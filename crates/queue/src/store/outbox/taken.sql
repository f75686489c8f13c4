-- Deletes the rows at the places $1 that have the keys $2. A row that was changed since it was read has another place: it
-- stays, and is told by its key when it is read again.
DELETE FROM egret.outbox
WHERE ctid = ANY (ARRAY(
    SELECT found.ctid
    FROM unnest($1::text[], $2::text[]) AS taken (place, key) CROSS JOIN LATERAL (
        SELECT ctid FROM egret.outbox
        WHERE outbox.ctid = taken.place::tid AND outbox.key = taken.key::uuid LIMIT 1) AS found))
