SELECT seq, due_at, attempt, failures, crashes, snoozes, holds, interruptions, generation, reason, last_delay_ms, held,
       in_line_ms
FROM redrive_live WHERE seq = ?1
