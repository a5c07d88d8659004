INSERT INTO redrive_done (seq, state, why, started_at, finished_at, attempt, failures, crashes, snoozes, holds,
                          interruptions, generation, fingerprint, output)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
