DELETE FROM redrive_attempts WHERE seq = ?1 AND attempt > ?2 AND attempt <= ?3
