-- Most jobs have nothing special: half the columns to bind. The rest is NULL, as it would be.
INSERT INTO redrive_jobs (id, kind, queue, priority, policy, created_at, checksum, payload, author)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (id) DO NOTHING
