INSERT INTO template (
    id, state, origin_branch, tenant, origin_branch_name, source, lsn, taken_at, postgres_major,
    preload_libraries, phases, losses, superuser)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (id) DO UPDATE
SET state = excluded.state, lsn = excluded.lsn, taken_at = excluded.taken_at,
    preload_libraries = excluded.preload_libraries, phases = excluded.phases,
    losses = excluded.losses, superuser = excluded.superuser
