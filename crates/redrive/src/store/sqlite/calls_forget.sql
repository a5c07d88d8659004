DELETE FROM redrive_calls WHERE at < ?1
