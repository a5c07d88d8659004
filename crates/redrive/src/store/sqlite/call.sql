SELECT digest, answer FROM redrive_calls WHERE key = ?1
