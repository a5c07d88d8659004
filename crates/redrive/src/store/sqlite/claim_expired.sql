-- Out of time, held or not, due or not: they are claimed in order to be buried.
SELECT seq, due_at, attempt, failures, crashes, snoozes, holds, interruptions, generation, reason, last_delay_ms, held,
       in_line_ms, ordering_key, destination, kind
FROM redrive_live INDEXED BY redrive_live_expires
WHERE queue = ?1 AND expires_at IS NOT NULL AND expires_at <= ?2
ORDER BY priority DESC, due_at, seq
