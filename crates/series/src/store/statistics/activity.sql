-- $1 groups of sessions. Their clients choose application names: those in $2 are shown, and $3 more, of most sessions; all
-- others count as `other`.
WITH session AS (
    SELECT coalesce(application_name, '')::text AS name, * FROM pg_stat_activity
), shown AS (
    SELECT session.name FROM session WHERE session.name <> ALL ($2::text[])
    GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT $3
)
SELECT coalesce(datname, '')::text AS datname, coalesce(state, '')::text AS state,
    coalesce(usename, '')::text AS usename,
    CASE WHEN session.name = ANY ($2::text[]) OR session.name IN (SELECT shown.name FROM shown)
         THEN session.name ELSE 'other' END AS application_name,
    coalesce(backend_type, '')::text AS backend_type, coalesce(wait_event_type, '')::text AS wait_event_type,
    coalesce(wait_event, '')::text AS wait_event,
    count(*)::float8 AS count,
    coalesce(max(extract(epoch FROM now() - xact_start)), 0)::float8 AS max_tx_duration
FROM session
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY count(*) DESC
LIMIT $1
