-- Claiming writes no job row: the scan goes on behind the cursor, and skips what runs.
SELECT seq, due_at, attempt, failures, crashes, snoozes, holds, interruptions, generation, reason, last_delay_ms, held,
       in_line_ms, ordering_key, destination, kind
FROM redrive_live INDEXED BY redrive_live_due
WHERE queue = ?1 AND priority = ?2 AND held = 0 AND due_at <= ?3 AND (due_at, seq) > (?4, ?5)
ORDER BY due_at, seq
