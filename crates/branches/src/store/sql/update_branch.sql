UPDATE branch
SET state = ?2, template = ?3, failure = ?4, receipt = ?5, boot_id = ?6, pid = ?7, start_ticks = ?8,
    parent_branch = ?9, waits_for_room = ?10, superuser = ?11, notice = ?12
WHERE id = ?1
