INSERT INTO redrive_keys (key, seq) VALUES (?1, ?2)
