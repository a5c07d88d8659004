-- Succeeded at once: every counter but the attempt is zero.
INSERT INTO redrive_done (seq, state, started_at, finished_at, attempt, failures, crashes, snoozes, holds,
                          interruptions, generation, output)
VALUES (?1, 'succeeded', ?2, ?3, ?4, 0, 0, 0, 0, 0, 0, ?5)
