INSERT INTO redrive_live (seq, queue, priority, due_at) VALUES (?1, ?2, ?3, ?4)
