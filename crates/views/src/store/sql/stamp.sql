-- What says whether rows of tables $1 may have changed without a trigger: their partitions, and the files of all.
SELECT coalesce(pg_catalog.string_agg(
           pg_catalog.format('%s:%s', member.oid, coalesce(pg_catalog.pg_relation_filenode(member.oid), 0)),
           ',' ORDER BY member.oid), '')
FROM (
    SELECT root.oid FROM pg_catalog.unnest($1::oid[]) AS root (oid)
    UNION
    SELECT tree.relid::oid
    FROM pg_catalog.unnest($1::oid[]) AS root (oid)
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(root.oid) AS tree
) AS member
