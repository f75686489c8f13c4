-- What the table for changes $2 of capture $1 has places for: columns, with the types that values must have to be recorded. Those of
-- one that the table has no longer, or that has another type now than is recorded, are those that are recorded.
SELECT place.attname::text AS name, coalesce(now.type_oid, place.atttypid) AS type_oid
FROM egret.view_capture AS capture
JOIN pg_catalog.pg_attribute AS place
    ON place.attrelid = $2::text::regclass AND place.attnum > 2 AND NOT place.attisdropped
LEFT JOIN LATERAL (
    SELECT source.atttypid AS type_oid
    FROM pg_catalog.pg_attribute AS source
    WHERE source.attrelid = capture.relation AND source.attname = place.attname AND source.attnum > 0 AND NOT source.attisdropped
      AND place.atttypid IN (
        -- Of a domain it is what that is made of which is recorded.
        WITH RECURSIVE made_of (type) AS (
            SELECT source.atttypid
            UNION ALL
            SELECT domain.typbasetype
            FROM made_of
            JOIN pg_catalog.pg_type AS domain ON domain.oid = made_of.type AND domain.typtype = 'd'
        )
        SELECT type FROM made_of)
) AS now ON true
WHERE capture.id = $1
ORDER BY place.attnum
