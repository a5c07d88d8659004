INSERT INTO redrive_activity (at, what, job, kind, queue, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
