-- The first in a destination's line. First attempts go before retries.
SELECT seq, due_at, attempt, failures, crashes, snoozes, holds, interruptions, generation, reason, last_delay_ms, held,
       in_line_ms, ordering_key, destination, kind
FROM redrive_live INDEXED BY redrive_live_line
WHERE destination = ?1 AND queue = ?2 AND held >= 2
ORDER BY held, priority DESC, due_at, seq
LIMIT ?3
