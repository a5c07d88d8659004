INSERT INTO redrive.records (shelf, name, value) VALUES ($1, $2, $3)
ON CONFLICT (shelf, name) DO UPDATE SET value = excluded.value
