-- Statements that take from role egret_views what it may do with objects of this database.
SELECT pg_catalog.format('REVOKE ALL ON %I.%I FROM egret_views', namespace.nspname, class.relname)
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE EXISTS (SELECT FROM pg_catalog.aclexplode(class.relacl) AS granted
              WHERE granted.grantee = pg_catalog.to_regrole('egret_views')) AND namespace.nspname <> 'egret'
UNION ALL
SELECT pg_catalog.format('REVOKE ALL ON SCHEMA %I FROM egret_views', namespace.nspname)
FROM pg_catalog.pg_namespace AS namespace
WHERE EXISTS (SELECT FROM pg_catalog.aclexplode(namespace.nspacl) AS granted
              WHERE granted.grantee = pg_catalog.to_regrole('egret_views')) AND namespace.nspname <> 'egret'
UNION ALL
SELECT pg_catalog.format('REVOKE ALL ON DATABASE %I FROM egret_views', database.datname)
FROM pg_catalog.pg_database AS database
WHERE database.datname = pg_catalog.current_database()
  AND EXISTS (SELECT FROM pg_catalog.aclexplode(database.datacl) AS granted
              WHERE granted.grantee = pg_catalog.to_regrole('egret_views'))
