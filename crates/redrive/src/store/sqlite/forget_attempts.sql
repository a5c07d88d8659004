DELETE FROM redrive_attempts WHERE seq = ?1
