INSERT INTO branch (
    id, tenant, name, state, template, parent_branch, origin, preset, durable, protected,
    settings, labels, created_at, ttl_ms, expires_at, failure, receipt, boot_id, pid, start_ticks,
    superuser, role_passwords, waits_for_room, notice)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)
