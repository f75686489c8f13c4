-- Views whose queries have the rights of a superuser, or that were restored without their owner, with all that they read.
SELECT kept.id, kept.schema::text AS schema, kept.name::text AS name,
       ARRAY(SELECT capture.relation FROM egret.view_table AS read JOIN egret.view_capture AS capture ON capture.id = read.capture
             WHERE read.view = kept.id) || coalesce(kept.inlined, '{}') AS reads
FROM egret.view AS kept
LEFT JOIN pg_catalog.pg_roles AS owner ON owner.rolname = kept.owner
LEFT JOIN pg_catalog.pg_class AS shown
    ON shown.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', kept.schema, kept.name))
LEFT JOIN pg_catalog.pg_roles AS shower ON shower.oid = shown.relowner
WHERE owner.rolsuper OR kept.owner = 'egret_views' AND shower.rolname <> 'egret_views'
ORDER BY kept.id
