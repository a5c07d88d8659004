INSERT INTO redrive_calls (key, digest, answer, at) VALUES (?1, ?2, ?3, ?4)
