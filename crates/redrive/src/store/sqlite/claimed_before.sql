SELECT seq, due_at, attempt, failures, crashes, snoozes, holds, interruptions, generation, reason, last_delay_ms, held
FROM redrive_live WHERE seq = ?1
