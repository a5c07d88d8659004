UPDATE redrive_live SET due_at = ?2, reason = ?3 WHERE seq = ?1
