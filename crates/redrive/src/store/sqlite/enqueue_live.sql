INSERT INTO redrive_live (seq, queue, priority, due_at, attempt, failures, crashes, snoozes, holds, interruptions,
                          generation, reason, last_delay_ms, expires_at, ordering_key, destination, kind)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
