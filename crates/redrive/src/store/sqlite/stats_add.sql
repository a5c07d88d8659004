INSERT INTO redrive_stats (queue, name, value) VALUES (?1, ?2, ?3)
ON CONFLICT (queue, name) DO UPDATE SET value = value + excluded.value
