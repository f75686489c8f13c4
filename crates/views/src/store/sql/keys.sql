-- The columns of a key of each of the tables $1: the primary key, or another that is never null.
SELECT DISTINCT ON (index.indrelid) index.indrelid AS relation,
       ARRAY(SELECT attribute.attname::text
             FROM unnest(index.indkey[0 : index.indnkeyatts - 1]) WITH ORDINALITY AS part (number, place)
             JOIN pg_catalog.pg_attribute AS attribute
                 ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number
             ORDER BY part.place) AS columns
FROM pg_catalog.pg_index AS index
WHERE index.indrelid = ANY ($1::oid[]) AND index.indisunique AND index.indimmediate AND index.indisvalid
  AND index.indpred IS NULL AND index.indexprs IS NULL
  AND NOT EXISTS (SELECT
                  FROM unnest(index.indkey[0 : index.indnkeyatts - 1], index.indcollation[0 : index.indnkeyatts - 1])
                      AS part (number, compared_by)
                  JOIN pg_catalog.pg_attribute AS attribute
                      ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number
                  -- What another collation tells apart may be equal by that of the column.
                  WHERE NOT attribute.attnotnull OR attribute.attcollation <> part.compared_by
                     -- There may be nulls from before as long as the constraint is NOT VALID.
                     OR EXISTS (SELECT FROM pg_catalog.pg_constraint AS declared
                                WHERE declared.conrelid = attribute.attrelid AND declared.contype = 'n'
                                  AND NOT declared.convalidated AND declared.conkey = ARRAY[attribute.attnum]))
ORDER BY index.indrelid, index.indisprimary DESC, index.indnkeyatts, index.indexrelid
