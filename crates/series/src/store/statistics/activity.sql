SELECT coalesce(datname, '')::text AS datname, coalesce(state, '')::text AS state,
    coalesce(usename, '')::text AS usename, coalesce(application_name, '')::text AS application_name,
    coalesce(backend_type, '')::text AS backend_type, coalesce(wait_event_type, '')::text AS wait_event_type,
    coalesce(wait_event, '')::text AS wait_event,
    count(*)::float8 AS count,
    coalesce(max(extract(epoch FROM now() - xact_start)), 0)::float8 AS max_tx_duration
FROM pg_stat_activity
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY count(*) DESC
LIMIT $1
