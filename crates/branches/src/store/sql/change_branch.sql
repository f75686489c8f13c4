UPDATE branch SET protected = ?2, ttl_ms = ?3, expires_at = ?4, labels = ?5 WHERE id = ?1
