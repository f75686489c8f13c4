-- Foreign keys of users that refer to the primary key of egret.outbox, as the statements that drop them.
SELECT pg_catalog.string_agg(
           pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', declared.conrelid::pg_catalog.regclass, declared.conname),
           '; ' ORDER BY declared.oid)
FROM pg_catalog.pg_constraint AS declared
WHERE declared.contype = 'f' AND declared.conparentid = 0
  AND declared.conindid = pg_catalog.to_regclass('egret.outbox_pkey')
