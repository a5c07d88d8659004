INSERT INTO redrive_live (seq, queue, priority, due_at, kind) VALUES (?1, ?2, ?3, ?4, ?5)
