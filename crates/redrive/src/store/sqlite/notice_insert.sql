INSERT INTO redrive_notices (key, at, rule, what, job, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (key) DO NOTHING
