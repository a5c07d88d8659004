DELETE FROM redrive_keys WHERE key = ?1
