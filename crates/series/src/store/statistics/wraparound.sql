SELECT datname::text, age(datfrozenxid)::float8 AS age_datfrozenxid_seconds,
    mxid_age(datminmxid)::float8 AS age_datminmxid_seconds
FROM pg_database
WHERE datallowconn
