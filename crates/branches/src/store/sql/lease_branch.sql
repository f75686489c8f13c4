UPDATE branch
SET tenant = ?2, name = ?3, state = ?4, origin = ?5, protected = ?6, labels = ?7, created_at = ?8,
    ttl_ms = ?9, expires_at = ?10, receipt = ?11, boot_id = ?12, pid = ?13,
    start_ticks = ?14
WHERE id = ?1 AND state = 'pooled'
